# SPDX-License-Identifier: Apache-2.0
"""Centroids of vectors by k-means: scikit-learn's, in mini-batches for many vectors, or cuML's on a GPU.

Both are imported when they run. The part for GPUs has not run on one yet.
"""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from curator_df.arguments import choose
from curator_df.extras import missing_extra, require_package

KMeansBy = Literal["scikit-learn", "cuml"]
"""Implementation of k-means, which also determines the device: CPUs, or the worker's GPU."""
BATCH_ROWS = 4096
"""Rows of a step of k-means. A sample of at most this size is used whole, with ten initializations of which the best counts."""
MOST_ROUNDS = 100
"""Maximum number of rounds over the sample; k-means stops earlier when centroids no longer move."""
LIBRARY_BYTES = 90_000_000
"""Bytes that a process holds once scikit-learn is imported and has run: 73 MB were measured in addition to pandas and pyarrow."""
CUML_BYTES = 600_000_000
"""Bytes on the host of cuML, CuPy and their libraries: 519 MB resident were measured after import, without a GPU."""


def require_sklearn(operator: str) -> None:
    """Raise `MissingExtraError` if scikit-learn is not installed."""
    if importlib.util.find_spec("sklearn") is None:
        raise missing_extra(operator, "scikit-learn", "models")


def require_k_means(operator: str, k_means: KMeansBy) -> None:
    """Raise `ParameterError` for an unknown implementation, `MissingExtraError` if it is not installed."""
    choose(operator, "k_means", k_means, KMeansBy)
    if k_means == "scikit-learn":
        require_sklearn(operator)
    else:
        require_package(f"{operator} with k_means='cuml'", "cuml", "gpu")


def fit_centroids(sample: npt.NDArray[np.float32], clusters: int, seed: int) -> npt.NDArray[np.float64]:
    """Return centroids of vectors of length 1, shape (clusters, width); deterministic for a sample and seed."""
    if clusters == 1:
        return _mean(sample)
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from threadpoolctl import threadpool_limits

    model: Any = KMeans(clusters, n_init=10)
    if len(sample) > BATCH_ROWS:
        model = MiniBatchKMeans(clusters, batch_size=BATCH_ROWS, n_init=1, compute_labels=False)
    model.set_params(max_iter=MOST_ROUNDS, random_state=seed)
    # One thread, because a task has the memory and the CPU of one, and the order of the sums is then fixed.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of empty clusters, which are allowed
        found: npt.NDArray[np.float64] = model.fit(sample).cluster_centers_.astype(np.float64)
    return found


def fit_centroids_on_gpu(sample: npt.NDArray[np.float32], clusters: int, seed: int) -> npt.NDArray[np.float64]:
    """Return centroids as `fit_centroids` does, on the worker's GPU, from all vectors at once."""
    if clusters == 1:
        return _mean(sample)
    from cuml.cluster import KMeans

    made = KMeans(**cuml_arguments(len(sample), clusters, seed)).fit(sample)
    found: npt.NDArray[np.float64] = np.asarray(made.cluster_centers_, dtype=np.float64)
    return found


def cuml_arguments(rows: int, clusters: int, seed: int) -> dict[str, Any]:
    """Return the arguments of cuML's k-means: as many initializations as `fit_centroids` has, and host arrays."""
    beginnings = 10 if rows <= BATCH_ROWS else 1
    given = {"n_clusters": clusters, "max_iter": MOST_ROUNDS, "random_state": seed, "n_init": beginnings}
    return {**given, "output_type": "numpy"}


def _mean(sample: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    mean: npt.NDArray[np.float64] = sample.mean(axis=0, dtype=np.float64, keepdims=True)
    return mean
