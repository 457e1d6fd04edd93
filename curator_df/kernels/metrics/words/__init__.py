# SPDX-License-Identifier: Apache-2.0
"""Counts of words."""
