# SPDX-License-Identifier: Apache-2.0
"""Ranges, the unit of work: their sources, the operations on their blocks, the results of their rows, and the journal."""
