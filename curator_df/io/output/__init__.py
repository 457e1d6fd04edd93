# SPDX-License-Identifier: Apache-2.0
"""Output files, and the functions that write them."""
