# SPDX-License-Identifier: Apache-2.0
"""Rows of a block: selected, sampled, shuffled, split and joined."""
