# SPDX-License-Identifier: Apache-2.0
"""IDs of the rows that a table of groups names, and rows that are read by their addresses."""
