# SPDX-License-Identifier: Apache-2.0
"""Compilation of kernels on their first call, and the folder in which compiled ones are kept."""
