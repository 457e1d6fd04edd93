# SPDX-License-Identifier: Apache-2.0
"""Pure functions of one block's text; no Dask, no files.

Hot ones are compiled with numba over the Arrow string buffers, with the GIL released (`compiling.compiled`). Importing
their modules compiles nothing and does not import numba: a client needs none.
"""
