# SPDX-License-Identifier: Apache-2.0
"""Counts as NeMo Curator and dolma define them."""
