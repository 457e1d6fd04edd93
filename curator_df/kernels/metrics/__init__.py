# SPDX-License-Identifier: Apache-2.0
"""Text metrics: the catalog, and the counts of each family in a folder of its own."""
