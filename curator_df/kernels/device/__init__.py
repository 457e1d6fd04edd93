# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels around the same functions of a text that the CPU's passes call; nothing here has run on a GPU yet.

Modules of this folder import numba's CUDA target, so they are imported only where blocks are on a device. Which counts,
hashes and signatures there are, and which are not: `counts`, `hashes` and `signatures`.
"""
