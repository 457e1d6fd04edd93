# SPDX-License-Identifier: Apache-2.0
"""The unit of work: where ranges come from, what runs on their blocks, what becomes of their rows, and what is done."""
