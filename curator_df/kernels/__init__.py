# SPDX-License-Identifier: Apache-2.0
"""Pure functions of one block's text; no Dask, no files.

Hot ones are compiled with numba over the Arrow string buffers, with the GIL released (`compiled`). Modules that hold compiled
functions (`word_counts`, `unicode_scan`) import numba, so they are imported inside functions, never at the top: a client needs no
numba. Importing them compiles nothing.
"""
