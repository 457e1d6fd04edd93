# SPDX-License-Identifier: Apache-2.0
"""Receipts of finished runs, and their display."""
