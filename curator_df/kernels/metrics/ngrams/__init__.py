# SPDX-License-Identifier: Apache-2.0
"""Repeated n-grams of words."""
