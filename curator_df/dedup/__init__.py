# SPDX-License-Identifier: Apache-2.0
"""Pending drops of near duplicates and of similar vectors, and tables of groups."""
