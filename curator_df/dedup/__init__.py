# SPDX-License-Identifier: Apache-2.0
"""Deferred drops of near duplicates and of similar vectors, and tables of groups."""
