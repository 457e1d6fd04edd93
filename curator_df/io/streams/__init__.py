# SPDX-License-Identifier: Apache-2.0
"""Compressed files as streams of bytes."""
