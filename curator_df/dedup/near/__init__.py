# SPDX-License-Identifier: Apache-2.0
"""Near duplicates: two passes over the texts, and the stages between and after them."""
