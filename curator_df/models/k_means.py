# SPDX-License-Identifier: Apache-2.0
"""Centroids of vectors by scikit-learn's k-means, in small batches where they are many; it is imported where it runs."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.errors import ParameterError
from curator_df.models.files import INSTALL

BATCH_ROWS = 4096
"""Of a step of k-means. A sample that is no larger is taken whole, from ten beginnings of which the best counts."""
MOST_ROUNDS = 100
"""Over the sample; k-means stops before that when centroids no longer move."""
LIBRARY_BYTES = 90_000_000
"""What a process holds once scikit-learn is imported and has run: 73 MB of its own were measured, beside pandas and pyarrow."""


def require_sklearn(operator: str) -> None:
    """Raise `ParameterError` if scikit-learn is not installed."""
    if importlib.util.find_spec("sklearn") is None:
        raise ParameterError(f"{operator} needs scikit-learn; {INSTALL}")


def fit_centroids(sample: npt.NDArray[np.float32], clusters: int, seed: int) -> npt.NDArray[np.float64]:
    """Return centroids of vectors of length 1, shape (clusters, width); the same for the same sample and seed."""
    if clusters == 1:
        mean: npt.NDArray[np.float64] = sample.mean(axis=0, dtype=np.float64, keepdims=True)
        return mean
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from threadpoolctl import threadpool_limits

    how = {"max_iter": MOST_ROUNDS, "random_state": seed}
    if len(sample) <= BATCH_ROWS:
        model: Any = KMeans(clusters, n_init=10, **how)
    else:
        model = MiniBatchKMeans(clusters, batch_size=BATCH_ROWS, n_init=1, compute_labels=False, **how)
    # One thread: it is the memory and the CPU of one task, and the sums come in one order.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of clusters that found no vector: they stay empty
        found: npt.NDArray[np.float64] = model.fit(sample).cluster_centers_.astype(np.float64)
    return found
