# SPDX-License-Identifier: Apache-2.0
"""Small fastText model files of every kind, with numbers made by chance, in the layout that fastText 0.9.2 writes."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

LOSSES = {"hs": 1, "ns": 2, "softmax": 3, "ova": 4}


def _dense(matrix: Any) -> bytes:
    return struct.pack("<qq", *matrix.shape) + matrix.astype("<f4").tobytes()


def _quantizer(random: Any, width: int, step: int) -> bytes:
    parts = -(-width // step)
    last = width - (parts - 1) * step
    centroids = random.normal(size=256 * width).astype("<f4")
    return struct.pack("<iiii", width, parts, step, last) + centroids.tobytes()


def _quantized(random: Any, rows: int, width: int, *, step: int, norms: bool) -> bytes:
    parts = -(-width // step)
    codes = random.integers(0, 256, rows * parts, dtype=np.uint8)
    made = struct.pack("<?qqi", norms, rows, width, len(codes)) + codes.tobytes() + _quantizer(random, width, step)
    if norms:
        made += random.integers(0, 256, rows, dtype=np.uint8).tobytes() + _quantizer(random, 1, 1)
    return made


def write_model(
    path: Path,
    *,
    words: list[str],
    labels: list[str],
    inputs: Any = None,
    outputs: Any = None,
    loss: str = "softmax",
    dim: int = 8,
    subwords: tuple[int, int] = (0, 0),
    word_ngrams: int = 1,
    buckets: int = 0,
    kept: int = -1,
    step: int = 0,
    norms: bool = False,
    quantized_outputs: bool = False,
    version: int = 12,
    seed: int = 1,
) -> str:
    """Write a model; ``step`` other than 0 quantizes it, ``kept`` is the number of buckets that are kept (-1: all)."""
    random = np.random.default_rng(seed)
    head = (793712314, version, dim, 5, 1, 1, 5, word_ngrams, LOSSES[loss], 3, buckets, *subwords, 100, 1e-4)
    made = struct.pack("<ii12id", *head)
    made += struct.pack("<iiiqq", len(words) + len(labels), len(words), len(labels), 1000, kept)
    for word in words:
        made += word.encode() + b"\0" + struct.pack("<qb", 5, 0)
    for place, label in enumerate(labels):
        made += f"__label__{label}".encode() + b"\0" + struct.pack("<qb", 7 * (len(labels) - place), 1)
    rows = len(words) + (buckets if kept < 0 else kept)
    if kept > 0:
        pairs = np.stack([random.choice(buckets, kept, replace=False), random.permutation(kept)], axis=1)
        made += pairs.astype("<i4").tobytes()
    made += bytes([step > 0])
    made += (
        _quantized(random, rows, dim, step=step, norms=norms)
        if step
        else _dense(random.normal(size=(rows, dim)) if inputs is None else np.asarray(inputs))
    )
    made += bytes([quantized_outputs])
    made += (
        _quantized(random, len(labels), dim, step=step, norms=norms)
        if quantized_outputs
        else _dense(random.normal(size=(len(labels), dim)) if outputs is None else np.asarray(outputs))
    )
    path.write_bytes(made)
    return str(path)


def write_word_model(path: Path, words: list[str], labels: list[str]) -> str:
    """Write a model that is certain of the label of each word with the same position as the label's; it knows no other words."""
    vectors = 50 * np.eye(len(words))
    return write_model(path, words=words, labels=labels, inputs=vectors, outputs=vectors, dim=len(words))
