# SPDX-License-Identifier: Apache-2.0
"""Settings of a drop of rows with similar vectors: the data it takes from blocks, clusters, and their memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from curator_df.dedup.vectors.vector_math import vector_words
from curator_df.errors import BudgetError
from curator_df.exchange.exchange import Keep, Linkage
from curator_df.exchange.keys import Keys
from curator_df.files.storage import Folder
from curator_df.memory.budget import Layout, memory_for_alone
from curator_df.memory.sizes import show_sizes, size_to_type

VectorKeep = Literal["hard", "easy", "random", "largest", "smallest", "none"]
"""Row to keep among similar ones: the farthest from its centroid or the nearest, any, the one with the best value, or none."""
VECTOR_WRITER_FACTOR = 0.5
"""Peak extra memory of storing vectors as a multiple of the block's bytes: they are copied in batches of some thousands."""
VECTOR_HEAD = 2
"""Number of words before a vector in the files of the pass: address, rank (0 if rows are not ranked by a value)."""
ROWS_PER_CLUSTER = 1000
"""Target number of rows per cluster, if the user does not set the number of clusters."""
MOST_CLUSTERS = 1 << 20
"""Maximum number of clusters that a user may request."""
SAMPLED_PER_CLUSTER = 256
"""Number of vectors sampled per cluster to find the clusters; fewer if they exceed `SAMPLE_BYTES`."""
LEAST_PER_CLUSTER = 8
SAMPLE_BYTES = 48_000_000
FIT_FIXED_BYTES = 16_000_000
"""Memory for finding clusters that does not depend on the sample or the number of clusters, in bytes."""
FIT_DEVICE_BYTES = 256_000_000
"""Memory on a GPU for finding clusters that CUDA libraries reserve, in bytes: an assumption. Excludes the CUDA context."""
FIT_DEVICE_ROWS = 32_768
"""Number of vectors that cuML compares with all centroids in one step, its ``max_samples_per_batch``."""
DEVICE_COPIES = 3
"""Number of copies of the sample and of the centroids on a GPU: an assumption."""


NOT_FINITE = "not_finite"
UNUSABLE = ("null", "empty", "zeros", NOT_FINITE)
"""Causes why a row has no vector, as the receipt counts them."""
FIRST_NOT_FINITE = "first_not_finite"
"""Key of the row ID of the first row whose vector contains NaN or infinity."""


class Vectors(NamedTuple):
    """Vectors that were taken from rows."""

    vectors: npt.NDArray[Any]
    """Array of float16 or float32, shape (rows with a vector, width)."""
    valid: npt.NDArray[np.bool_]
    """Array of shape (rows,): which rows have a vector."""
    values: npt.NDArray[Any] | None = None
    """Array of shape (rows,) with the values by which the kept rows are chosen."""
    missing: npt.NDArray[np.bool_] | None = None
    """Array of shape (rows,), True where that value is null."""
    unusable: Mapping[str, npt.NDArray[np.bool_]] = MappingProxyType({})
    """Array of shape (rows,) for each cause why a row has no vector."""


@dataclass(frozen=True)
class VectorSettings:
    """Settings of a drop of rows with similar vectors, which all its stages share."""

    take: Callable[..., Vectors]
    """Module-level function: ``take(block, **parameters)``."""
    absent: Callable[..., npt.NDArray[np.bool_]]
    """Module-level function ``absent(block, **parameters)``: returns which rows are null; the last pass recognizes rows by it."""
    fit: Callable[..., npt.NDArray[np.float64]] = field(metadata={"identity": False})
    """Module-level function ``fit(sample, clusters, seed)``: returns centroids."""
    parameters: Mapping[str, Any]
    """Keyword arguments of ``take`` and ``absent``."""
    width: int
    """Number of components of a vector."""
    dtype: Literal["float16", "float32"]
    """Data type in which vectors are stored."""
    eps: tuple[float, ...]
    """Distances in ascending order: a row is dropped if its cosine with another is at least 1 minus this."""
    num_clusters: int | None
    """Number of clusters; None derives it from the rows with `cluster_count`."""
    keep: VectorKeep
    """Row of a group to keep."""
    seed: int
    """Seed of the sample, of k-means, and of ``keep="random"``."""
    reason: str
    """Drop reason, for the receipt."""
    linkage: Linkage = "direct"
    """Whether a row is dropped because of a kept row that it is similar to, or because of any row before it."""
    fits_on_device: bool = False
    """Whether ``fit`` runs on the worker's GPU. Its centroids differ from those of the CPU, so this is part of the identity."""
    chosen: int = field(default=0, metadata={"identity": False})
    """Index in ``eps`` of the distance by which rows are dropped."""
    home: Folder | None = field(default=None, metadata={"identity": False})
    """Folder that stores the completed stage, as in `exchange.key_drop.KeyDrop`."""
    columns: tuple[str, ...] = field(default=(), metadata={"identity": False})
    """Columns that ``take`` reads."""
    held_bytes: int = field(default=0, metadata={"identity": False})
    """Per-worker fixed memory for ``fit``, in bytes."""
    measure: str = field(default="", metadata={"identity": False})
    """Name of the similarity, for rejects."""
    count_into: str | None = field(default=None, metadata={"identity": False})
    """New column with the number of rows that each kept row stands for; None for no column."""
    of_parts: ClassVar[bool] = False
    """False, because the keys are those of whole rows."""
    other_files: ClassVar[Sequence[str]] = ()
    """Empty, because rows are not compared with another table."""

    @property
    def rule(self) -> str:
        """Condition for two rows to match, as rejects name it."""
        return f"{self.measure} >= {self.threshold:g}"

    @property
    def threshold(self) -> float:
        """Minimum similarity of two rows."""
        return 1 - self.eps[self.chosen]

    @property
    def words(self) -> int:
        """Number of 64-bit words of a vector."""
        return vector_words(self.width, np.dtype(self.dtype).itemsize)

    @property
    def ranking(self) -> Keep | None:
        """Preferred value, if the kept rows are chosen by a value."""
        return self.keep if self.keep in ("largest", "smallest") else None

    @property
    def keeps_none(self) -> bool:
        """Whether every row that is similar to another is dropped."""
        return self.keep == "none"

    @property
    def covers(self) -> bool:
        """Whether a row is dropped only because of a kept row. If none is kept, any similar row suffices."""
        return self.linkage == "direct" and not self.keeps_none

    def of(self, block: Any) -> Keys:
        """Return the keys by which the last pass recognizes the rows of the first: which of them are null."""
        hashes = np.zeros((len(block), 2), dtype=np.uint64)
        hashes[:, 0] = self.absent(block, **self.parameters)
        return Keys(hashes)

    def clusters(self, rows: int) -> int:
        """Return the number of clusters for a number of rows with vectors."""
        return self.num_clusters or cluster_count(rows)

    def fit_bytes(self, clusters: int) -> int:
        """Return the memory for finding the clusters in bytes: the sample twice, the centroids, and the arrays of k-means."""
        sample = sample_rows(clusters, self.width)
        return FIT_FIXED_BYTES + 4 * self.width * (2 * sample + 3 * clusters) + 64 * sample + 24 * self.width * clusters


def fit_device_bytes(clusters: int, width: int) -> int:
    """Return the GPU memory for finding the clusters in bytes: an assumption, not yet measured on a GPU.

    It consists of copies of the sample and the centroids, and the distances of 32,768 vectors to all centroids (cuML's default).
    """
    sample = sample_rows(clusters, width)
    distances = min(sample, FIT_DEVICE_ROWS) * clusters
    return FIT_DEVICE_BYTES + 4 * (DEVICE_COPIES * width * (sample + clusters) + distances)


def cluster_count(rows: int) -> int:
    """Return the default number of clusters, which depends only on the number of rows.

    Examples
    --------
    >>> [cluster_count(rows) for rows in (0, 500, 5_000, 1_000_000, 100_000_000)]
    [1, 1, 5, 1000, 10000]
    """
    return max(min(rows // ROWS_PER_CLUSTER, int(rows**0.5)), 1)


def sample_rows(clusters: int, width: int) -> int:
    """Return the maximum number of vectors from which clusters are found.

    Examples
    --------
    >>> sample_rows(10, 384), sample_rows(1_000, 384), sample_rows(10_000, 384)
    (2560, 31250, 80000)
    """
    return min(SAMPLED_PER_CLUSTER * clusters, max(SAMPLE_BYTES // (4 * width), LEAST_PER_CLUSTER * clusters))


def require_room(name: str, pending: VectorSettings, clusters: int, layout: Layout) -> None:
    """Raise `BudgetError` if the clusters cannot be found in the memory of a node, or of its GPU if one is used."""
    needed = pending.fit_bytes(clusters)
    if needed > layout.exclusive_bytes:
        need, has = show_sizes(needed, layout.exclusive_bytes)
        raise BudgetError(
            f"{name}: k-means with num_clusters={clusters:,} and vectors of {pending.width:,} numbers needs {need} in one "
            f"task, but a task has only {has}. Use memory={size_to_type(memory_for_alone(needed, layout))}, or a smaller "
            "num_clusters="
        )
    if not pending.fits_on_device:
        return
    require_gpu(name, layout)
    on_device = fit_device_bytes(clusters, pending.width)
    if on_device > layout.device_bytes:
        need, has = show_sizes(on_device, layout.device_bytes)
        raise BudgetError(
            f"{name}: k-means with num_clusters={clusters:,} and vectors of {pending.width:,} numbers needs {need} on a "
            f"GPU, but may use only {has}. Set more with start_cluster(device_memory=), use a smaller num_clusters=, or set "
            "k_means='scikit-learn'"
        )


def require_gpu(name: str, layout: Layout) -> None:
    """Raise `BudgetError` if the workers do not have a GPU to find clusters on."""
    if not layout.device_bytes:
        raise BudgetError(
            f"{name}: k_means='cuml' needs a GPU, and these workers have none. Start the cluster with start_cluster(gpus='auto') "
            "on a machine with GPUs, or set k_means='scikit-learn'"
        )
