# SPDX-License-Identifier: Apache-2.0
"""Rows in random order."""
