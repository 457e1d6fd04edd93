# SPDX-License-Identifier: Apache-2.0
"""Make every compiled kernel exist in numba's on-disk cache: ``python -m curator_df.kernels.warm``.

To be run in a short-lived process before workers start, so that no worker compiles. Measured on a busy machine, beyond
the import of numba (0.7 s, 67 MB): a minute and 340 MB to compile (n-grams 22 s, C4 19 s, words and lines 12 s), 2 s and
105 MB to load, the import of Dask included. The cache is beside the package's files or,
where those cannot be written, in numba's own directory of the user.
"""

from __future__ import annotations

from importlib import import_module

COMPILED_MODULES = (
    "curator_df.kernels.c4_copy",
    "curator_df.kernels.c4_lines",
    "curator_df.kernels.c4_pass",
    "curator_df.kernels.gram_counts",
    "curator_df.kernels.gram_pass",
    "curator_df.kernels.line_counts",
    "curator_df.kernels.line_pass",
    "curator_df.kernels.murmur_hash",
    "curator_df.kernels.row_copy",
    "curator_df.kernels.sentences",
    "curator_df.kernels.short_grams",
    "curator_df.kernels.unicode_scan",
    "curator_df.kernels.word_counts",
    "curator_df.kernels.word_pass",
    "curator_df.kernels.word_windows",
)
"""Modules with compiled functions. Each has explicit signatures, so that importing it compiles or loads them."""


def compile_all() -> None:
    """Compile, or load, every kernel."""
    for module in COMPILED_MODULES:
        import_module(module)


if __name__ == "__main__":
    compile_all()
