# SPDX-License-Identifier: Apache-2.0
"""Make compiled kernels exist in numba's on-disk cache: ``python -m curator_df.kernels.warm``.

To be done in a short-lived process before a task needs them, so that no worker compiles. Measured, beyond the import of
numba (0.7 s, 67 MB): the basic group takes 12 s to compile and 0.7 s to load; lines 7 s, n-grams 22 s, C4 19 s and
near-duplicates 25 s, at most 190 MB each. The cache is beside the package's files or, where those cannot be written, in
numba's own directory of the user.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

BASIC = "basic"
GROUPS: Mapping[str, tuple[str, ...]] = {
    BASIC: ("murmur_hash", "part_bytes", "row_copy", "unicode_scan", "word_counts", "word_pass"),
    "lines": ("line_counts", "line_pass"),
    "grams": ("word_reading", "short_grams", "gram_counts", "gram_pass"),
    "c4": ("sentences", "c4_lines", "c4_pass", "c4_copy"),
    "near_duplicates": (
        "minhash_bands",
        "minhash_sketch",
        "murmur_windows",
        "shingle_hashes",
        "shingle_sets",
        "union_find",
        "word_windows",
    ),
}
"""Modules with compiled functions, by what needs them. Each has explicit signatures, so that importing it compiles or loads
it. Every worker loads the basic ones; the others are for the runs whose kernels name them (`BlockKernel.compiled`)."""


def compile_group(group: str) -> None:
    """Compile, or load, the kernels of a group."""
    for module in GROUPS[group]:
        import_module(f"curator_df.kernels.{module}")


if __name__ == "__main__":
    for name in GROUPS:
        compile_group(name)
