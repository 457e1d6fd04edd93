# SPDX-License-Identifier: Apache-2.0
"""Parquet files."""
