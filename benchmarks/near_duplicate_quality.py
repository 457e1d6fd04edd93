# SPDX-License-Identifier: Apache-2.0
"""Near duplicates found in real text against the exact truth: recall in bins of similarity beside theory, and precision.

    python -m benchmarks.near_duplicate_quality --data ../shared/data --seeds 8

One process, no Dask: signatures, band hashes, candidate pairs, exact verification, components. ``found`` is the part of
all pairs with so high a similarity that agree in a band, as a mean over seeds; ``theory`` is the S-curve at the pairs'
similarities. ``together`` counts pairs in one group: of those with J >= 0.8 the part that is (recall), and of all that are
the part with J >= 0.7 (precision).
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from curator_df.kernels.minhash.signatures import band_hashes
from curator_df.profiles.minhash import FINEWEB, NEMO
from tests.kernels.near_duplicate_truth import (
    BINS,
    found_by,
    groups_of,
    read_texts,
    read_truth,
    recall_by_bin,
    together,
)

TRUTHS = {"char24": NEMO, "word5": FINEWEB}
"""The truth that is exact for a scheme's shingles."""


def main() -> None:
    """Print a table for each scheme and truth."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="directory of the sample files")
    parser.add_argument("--seeds", type=int, default=8, help="how many seeds to average over")
    options = parser.parse_args()
    texts = read_texts(options.data)
    print(f"{len(texts):,} texts, {texts.str.len().sum() / 1e6:.1f} M characters")
    for name, scheme in TRUTHS.items():
        pairs, jaccards = read_truth(options.data, name, texts)
        for wide in (False, True):
            runs = [replace(scheme, use_64_bit_hash=wide, seed=seed) for seed in range(options.seeds)]
            hashes = [band_hashes(texts, run) for run in runs]
            found = np.mean([recall_by_bin(found_by(one, pairs), jaccards) for one in hashes], axis=0)
            theory = recall_by_bin(scheme.candidate_probability(jaccards), jaccards)
            print(f"\n{scheme.name}, {runs[0].bits} bits, {scheme.num_bands} x {scheme.minhashes_per_band}")
            for low, high, mean, expected in zip(BINS[:-1], BINS[1:], found, theory, strict=True):
                print(f"  J {low:.2f} to {min(high, 1.0):.2f}   found {mean:.3f}   theory {expected:.3f}")
            for jaccard_threshold, anchors in ((None, 1), (0.8, 1), (0.8, 2), (0.8, 4)):
                results = [
                    together(groups_of(texts, one, run, jaccard_threshold, anchors), pairs, jaccards)
                    for one, run in zip(hashes[:2], runs[:2], strict=True)
                ]
                recall, precision = np.mean(results, axis=0)
                print(
                    f"  jaccard_threshold={jaccard_threshold} anchors={anchors}: recall {recall:.4f}, precision {precision:.3f}"
                )


if __name__ == "__main__":
    main()
