# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels around the per-text functions of the CPU's passes; nothing here has run on a GPU yet.

Modules of this folder import numba's CUDA target, so they are imported only if blocks are on a device. The supported counts,
hashes and signatures are in `counts`, `hashes` and `signatures`.
"""
