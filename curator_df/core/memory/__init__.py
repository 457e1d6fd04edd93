# SPDX-License-Identifier: Apache-2.0
"""Bytes: what a node has, what a worker may use, what processes and GPUs hold, and who waits for room."""
