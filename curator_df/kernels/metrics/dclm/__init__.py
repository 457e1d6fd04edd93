# SPDX-License-Identifier: Apache-2.0
"""Counts as DCLM defines them."""
