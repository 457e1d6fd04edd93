# SPDX-License-Identifier: Apache-2.0
"""Dask's own operations under the memory budget: looks at a table, results in pieces, and tasks that get a second try."""
