# SPDX-License-Identifier: Apache-2.0
"""Draw the chance that a pair is found, by its similarity, for each published scheme: docs/s_curves.png.

pip install matplotlib && python benchmarks/s_curves.py docs/s_curves.png
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
import numpy as np

import curator_df as cdf

SCHEMES = ("NEMO", "FINEWEB", "DATA_JUICER", "REDPAJAMA_V2")


def main(path: str) -> None:
    """Write the picture."""
    jaccards = np.linspace(0, 1, 401)
    figure, axes = plt.subplots(figsize=(7, 4.2), dpi=130)
    for name in SCHEMES:
        scheme = getattr(cdf.minhash, name)
        label = f"{name}: {scheme.num_bands} bands of {scheme.minhashes_per_band}"
        axes.plot(jaccards, scheme.candidate_probability(jaccards), label=label, linewidth=2)
    axes.axvline(0.8, color="0.5", linestyle=":", linewidth=1)
    axes.text(0.805, 0.02, "jaccard_threshold=0.8", color="0.4", fontsize=9)
    axes.set(
        xlabel="Jaccard similarity of two texts", ylabel="chance that they are compared", xlim=(0.3, 1), ylim=(0, 1.01)
    )
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="upper left", frameon=False, fontsize=9)
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    main(sys.argv[1])
