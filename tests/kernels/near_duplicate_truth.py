# SPDX-License-Identifier: Apache-2.0
"""Near duplicates of real texts in one process, and the exact truth to hold them against."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from curator_df.kernels.minhash.graphs import component_names, vertices
from curator_df.kernels.minhash.jaccard import jaccard_similarities
from curator_df.kernels.minhash.scheme import Scheme
from tests.kernels.candidate_pairs import candidate_pairs

BINS = (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.01)


def read_texts(data: Path) -> pd.Series:
    """Return the texts that the truth is about, by id."""
    texts = {}
    for name in ("news_4k", "docs_neardup"):
        with gzip.open(data / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            texts |= {row["id"]: row["text"] for row in map(json.loads, lines)}
    return pd.Series(texts, dtype="string[pyarrow]")


def read_truth(data: Path, name: str, texts: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Return all pairs of rows with a similarity of at least 0.7, and their similarities."""
    truth = pd.read_parquet(data / f"truth_{name}.parquet")
    pairs = np.stack([texts.index.get_indexer(truth[side]) for side in ("id_a", "id_b")], axis=1)
    return pairs.astype(np.int64), truth["jaccard"].to_numpy()


def found_by(hashes: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Tell which pairs agree in a band."""
    return (hashes[pairs[:, 0]] == hashes[pairs[:, 1]]).any(axis=1)


def recall_by_bin(found: np.ndarray, jaccards: np.ndarray) -> np.ndarray:
    """Return the mean in each bin."""
    return np.array([found[(jaccards >= low) & (jaccards < high)].mean() for low, high in pairwise(BINS)])


def groups_of(texts: pd.Series, hashes: np.ndarray, scheme: Scheme, verify: float | None, anchors: int) -> np.ndarray:
    """Return the smallest row of each row's group."""
    pairs = candidate_pairs(hashes, anchors=anchors)
    if verify is not None:
        pairs = pairs[jaccard_similarities(texts, texts, pairs, scheme) >= verify]
    names = np.arange(len(texts))
    ids = vertices([pairs])
    names[ids] = component_names(ids, [pairs])
    return names


def together(names: np.ndarray, pairs: np.ndarray, jaccards: np.ndarray) -> tuple[float, float]:
    """Return recall of pairs with J >= 0.8, and precision at 0.7."""
    joined = names[pairs[:, 0]] == names[pairs[:, 1]]
    sizes = np.unique(names, return_counts=True)[1]
    return float(joined[jaccards >= 0.8].mean()), float(joined.sum() / (sizes * (sizes - 1) // 2).sum())
