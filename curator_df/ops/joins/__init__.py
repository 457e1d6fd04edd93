# SPDX-License-Identifier: Apache-2.0
"""Joins of a table with another one on columns of keys."""
