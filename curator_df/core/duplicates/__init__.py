# SPDX-License-Identifier: Apache-2.0
"""Passes of the deferred removal of near-duplicates and of similar vectors, and tables of groups."""
