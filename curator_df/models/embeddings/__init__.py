# SPDX-License-Identifier: Apache-2.0
"""Vectors of texts, and duplicates by meaning."""
