# SPDX-License-Identifier: Apache-2.0
"""Operators on rows: IDs, samples, segments."""
