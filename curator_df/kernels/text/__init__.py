# SPDX-License-Identifier: Apache-2.0
"""Bytes of text columns: buffers, code points, hashes and words."""
