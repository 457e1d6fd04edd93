# SPDX-License-Identifier: Apache-2.0
"""The passes behind pending drops of near duplicates and of vectors, and tables of groups."""
