# SPDX-License-Identifier: Apache-2.0
"""Ranges and blocks out of files, files out of blocks."""
