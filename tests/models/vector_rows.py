# SPDX-License-Identifier: Apache-2.0
"""Rows with vectors, for tests of semantic duplicates."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

WIDTH = 24


def vectors(count: int, seed: int = 0) -> np.ndarray:
    """Return vectors of which many are another one moved a little, some the same, and some longer or shorter."""
    chance = np.random.default_rng(seed)
    made = chance.normal(size=(count, WIDTH))
    source = chance.integers(0, count // 3, size=count)
    moved = made[source] + chance.normal(size=(count, WIDTH)) * chance.choice([0.0, 0.02, 0.1, 0.3], size=(count, 1))
    copies = np.arange(count) >= count // 3
    made[copies] = moved[copies] * chance.choice([1.0, 2.0], size=(count, 1))[copies]
    return chance.permutation(made).astype(np.float32)


def write_rows(folder: Path, numbers: np.ndarray, cuts=(), nulls=()) -> str:
    folder.mkdir(parents=True)
    values = numbers.tolist()
    for number in nulls:
        values[number] = None
    table = pa.table(
        {
            "id": np.arange(len(values)),
            "score": np.random.default_rng(1).integers(0, 5, len(values)),
            "embedding": pa.array(values, pa.list_(pa.float32(), numbers.shape[1])),
        }
    )
    for number, (start, stop) in enumerate(itertools.pairwise([0, *cuts, len(values)])):
        pq.write_table(table.slice(start, stop - start), folder / f"{number:02d}.parquet", row_group_size=50)
    return str(folder)
