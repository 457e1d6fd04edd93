# SPDX-License-Identifier: Apache-2.0
"""A pending drop of rows whose vectors are similar: what it takes from blocks, and what its pass over the rows leaves.

The pass writes the vectors of each range to a file, in order of address. `core.duplicates.vector_stages` takes it from
there, so whatever makes the vectors runs once for that, and once more to write the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from curator_df.core.exchange.barrier import CHECKSUM_MASK, DropRows, Found, Keys, key_checksum
from curator_df.core.exchange.exchange import Keep, ranks
from curator_df.core.exchange.vector_math import to_words, vector_words
from curator_df.core.files.slice_file import SliceWriter
from curator_df.core.files.storage import FileRecord, Folder, NewFile
from curator_df.core.fingerprint import fingerprint
from curator_df.core.memory.budget import Layout, memory_for_alone
from curator_df.core.ranges.range_action import RangeAction
from curator_df.core.ranges.sink import StageSink
from curator_df.core.sizes import show_size
from curator_df.errors import BudgetError

VectorKeep = Literal["hard", "easy", "random", "largest", "smallest"]
"""Which of similar rows stays: the farthest from its centroid or the nearest, any, or the one with the best value."""
ROWS_AT_A_TIME = 2048
"""Rows of a block whose vectors are copied at a time."""
VECTOR_WRITER_FACTOR = 0.5
"""Peak extra bytes of keeping vectors as a multiple of the block's: they are copied some thousands at a time."""
VECTOR_HEAD = 2
"""Words before a vector in the files of the pass: address, rank (0 where rows are not ranked by a value)."""
ROWS_PER_CLUSTER = 1000
"""Wanted, where the user does not name the number of clusters."""
MOST_CLUSTERS = 1 << 20
"""As many as a user may ask for."""
SAMPLED_PER_CLUSTER = 256
"""Vectors that clusters are found from, for each; fewer where they are more than `SAMPLE_BYTES`."""
LEAST_PER_CLUSTER = 8
SAMPLE_BYTES = 48_000_000
FIT_FIXED_BYTES = 16_000_000
"""Of finding clusters, besides what grows with the sample and with the clusters."""
FIT_DEVICE_BYTES = 256_000_000
"""The same on a GPU, for what libraries of CUDA keep for their work: assumed. CUDA's own context is not in it."""
FIT_DEVICE_ROWS = 32_768
"""Vectors that cuML compares with all centroids at a time, its ``max_samples_per_batch``."""
DEVICE_COPIES = 3
"""Of the sample and of the centroids on a GPU: assumed."""


NOT_FINITE = "not_finite"
UNUSABLE = ("null", "empty", "zeros", NOT_FINITE)
"""Causes for which a row has no vector, as the receipt counts them."""
FIRST_NOT_FINITE = "first_not_finite"
"""Row ID of the first row whose vector has NaN or infinity."""


class Vectors(NamedTuple):
    """What is taken from rows."""

    vectors: npt.NDArray[Any]
    """float16 or float32, shape (rows with a vector, width)."""
    valid: npt.NDArray[np.bool_]
    """Shape (rows,): which rows have a vector."""
    values: npt.NDArray[Any] | None = None
    """Shape (rows,): what survivors are chosen by."""
    missing: npt.NDArray[np.bool_] | None = None
    """Shape (rows,): where that value is null."""
    unusable: Mapping[str, npt.NDArray[np.bool_]] = MappingProxyType({})
    """Shape (rows,) for each cause for which a row has no vector."""


@dataclass(frozen=True)
class VectorBarrier:
    """Rows with similar vectors, of which one stays."""

    take: Callable[..., Vectors]
    """Module-level function: ``take(block, **parameters)``."""
    absent: Callable[..., npt.NDArray[np.bool_]]
    """Module-level function: ``absent(block, **parameters)`` says which rows are null, by which the last pass knows them."""
    fit: Callable[..., npt.NDArray[np.float64]] = field(metadata={"identity": False})
    """Module-level function: ``fit(sample, clusters, seed)`` returns centroids."""
    parameters: Mapping[str, Any]
    """Keyword arguments of ``take`` and ``absent``."""
    width: int
    """Numbers of a vector."""
    dtype: Literal["float16", "float32"]
    """How vectors are kept."""
    eps: tuple[float, ...]
    """Ascending: a row goes if its cosine with another is at least 1 less this."""
    num_clusters: int | None
    """None: `cluster_count` of the rows."""
    keep: VectorKeep
    """Which row stays."""
    seed: int
    """Of the sample, of k-means, and of ``keep="random"``."""
    reason: str
    """Why rows go, as the receipt says."""
    keep_rows: Callable[[Any, npt.NDArray[np.bool_]], Any] = field(metadata={"identity": False})
    """The rows of a block for which a mask is True."""
    fits_on_device: bool = False
    """Whether ``fit`` computes on the worker's GPU. Its centroids are other ones, so it identifies what is found."""
    chosen: int = field(default=0, metadata={"identity": False})
    """Place in ``eps`` of the one that rows are dropped by."""
    home: Folder | None = field(default=None, metadata={"identity": False})
    """As in `core.exchange.barrier.Barrier`."""
    columns: tuple[str, ...] = field(default=(), metadata={"identity": False})
    """All that ``take`` looks at."""
    held_bytes: int = field(default=0, metadata={"identity": False})
    """What a worker holds once for ``fit``."""
    measure: str = field(default="", metadata={"identity": False})
    """Name of the similarity, for rejects."""
    of_parts: ClassVar[bool] = False
    """Keys are of whole rows."""
    other_files: ClassVar[Sequence[str]] = ()
    """Rows are compared with none of another table."""

    @property
    def rule(self) -> str:
        """What makes two rows alike, as rejects name it."""
        return f"{self.measure} >= {self.threshold:g}"

    @property
    def threshold(self) -> float:
        """Least similarity of two rows."""
        return 1 - self.eps[self.chosen]

    @property
    def words(self) -> int:
        """64-bit words of a vector."""
        return vector_words(self.width, np.dtype(self.dtype).itemsize)

    @property
    def ranking(self) -> Keep | None:
        """Which value is preferred, where survivors are chosen by one."""
        return self.keep if self.keep in ("largest", "smallest") else None

    def of(self, block: Any) -> Keys:
        """Return what the last pass knows the rows of the first by: which of them are null."""
        hashes = np.zeros((len(block), 2), dtype=np.uint64)
        hashes[:, 0] = self.absent(block, **self.parameters)
        return Keys(hashes)

    def find(self, runner: Any, before: Any, step: Any) -> Found:
        """Run the stages that this waits for."""
        from curator_df.core.duplicates.vector_stages import VectorStages

        return VectorStages(runner, before, step, self).run()

    def resolved(self, found: Found) -> RangeAction:
        """Return what drops the rows in the last pass."""
        return DropRows(self, found)

    def clusters(self, rows: int) -> int:
        """Return how many clusters are asked for, of so many rows with vectors."""
        return self.num_clusters or cluster_count(rows)

    def fit_bytes(self, clusters: int) -> int:
        """Return what finding so many clusters holds: the sample twice, centroids, and what k-means makes of both."""
        sample = sample_rows(clusters, self.width)
        return FIT_FIXED_BYTES + 4 * self.width * (2 * sample + 3 * clusters) + 64 * sample + 24 * self.width * clusters


def fit_device_bytes(clusters: int, width: int) -> int:
    """Return what finding so many clusters holds on a GPU: assumed, for it has not run on one yet.

    Beside copies of the sample and the centroids, the distances of 32,768 vectors to all centroids (cuML's default).
    """
    sample = sample_rows(clusters, width)
    distances = min(sample, FIT_DEVICE_ROWS) * clusters
    return FIT_DEVICE_BYTES + 4 * (DEVICE_COPIES * width * (sample + clusters) + distances)


def cluster_count(rows: int) -> int:
    """Return the clusters for so many rows where the user names no number: it follows from the rows alone.

    Examples
    --------
    >>> [cluster_count(rows) for rows in (0, 500, 5_000, 1_000_000, 100_000_000)]
    [1, 1, 5, 1000, 10000]
    """
    return max(min(rows // ROWS_PER_CLUSTER, int(rows**0.5)), 1)


def sample_rows(clusters: int, width: int) -> int:
    """Return how many vectors clusters are found from, at most.

    Examples
    --------
    >>> sample_rows(10, 384), sample_rows(1_000, 384), sample_rows(10_000, 384)
    (2560, 31250, 80000)
    """
    return min(SAMPLED_PER_CLUSTER * clusters, max(SAMPLE_BYTES // (4 * width), LEAST_PER_CLUSTER * clusters))


@dataclass(frozen=True)
class VectorSink(StageSink):
    """The end of the first pass: a file of vectors for each range."""

    folder: Folder
    """Where they go."""
    barrier: VectorBarrier
    """What is taken from a block."""
    writer_factor: float = VECTOR_WRITER_FACTOR
    """Peak extra bytes as a multiple of the block's."""

    @property
    def fingerprint(self) -> str:
        """Digest of what is written."""
        return fingerprint(self.barrier)

    def open(self, number: int, meta: Any, buffer_bytes: int) -> _RangeVectors:  # noqa: ARG002 - the face of a sink
        """Start the file of a range."""
        return _RangeVectors(self, number)


class _RangeVectors:
    def __init__(self, sink: VectorSink, number: int) -> None:
        self._barrier = sink.barrier
        self._file = NewFile(sink.folder, f"vectors/part-{number:06d}.slices")
        self._writer = SliceWriter(self._file, VECTOR_HEAD + sink.barrier.words, np.zeros(1, dtype=np.uint64))
        self._checksum = self._rows = self._vectors = 0
        self._unusable = dict.fromkeys(UNUSABLE, 0)
        self._first_not_finite: int | None = None

    def append(self, block: Any) -> None:
        for start in range(0, len(block), ROWS_AT_A_TIME):
            self._append(block.iloc[start : start + ROWS_AT_A_TIME])

    def _append(self, block: Any) -> None:
        barrier, addresses = self._barrier, block.index.to_numpy()
        self._checksum = (self._checksum + key_checksum(barrier.of(block).hashes, addresses)) & CHECKSUM_MASK
        taken = barrier.take(block, **barrier.parameters)
        rows = np.zeros((len(taken.vectors), VECTOR_HEAD + barrier.words), dtype=np.uint64)
        rows[:, 0] = addresses[taken.valid].view(np.uint64)
        if barrier.ranking is not None and taken.values is not None:
            rows[:, 1] = ranks(taken.values, barrier.ranking, taken.missing)[taken.valid]
        rows[:, VECTOR_HEAD:] = to_words(taken.vectors)
        self._writer.append(rows)
        self._rows += len(block)
        self._vectors += len(rows)
        for cause, found in taken.unusable.items():
            self._unusable[cause] += int(found.sum())
            if cause == NOT_FINITE and self._first_not_finite is None and found.any():
                self._first_not_finite = int(addresses[found.argmax()])

    def commit(self) -> list[FileRecord]:
        self._writer.finish()
        return [self._file.commit(self._vectors)]

    def discard(self) -> None:
        self._file.discard()

    @property
    def summary(self) -> dict[str, int]:
        first = {} if self._first_not_finite is None else {FIRST_NOT_FINITE: self._first_not_finite}
        return {"key_checksum": self._checksum, "vectors": self._vectors, **self._unusable, **first}


def require_room(name: str, barrier: VectorBarrier, clusters: int, layout: Layout) -> None:
    """Raise `BudgetError` if so many clusters cannot be found in the memory of a node, or of its GPU where that is asked for."""
    needed = barrier.fit_bytes(clusters)
    if needed > layout.exclusive_bytes:
        raise BudgetError(
            f"{name}: k-means with {clusters:,} clusters of {barrier.width:,} numbers needs {show_size(needed)} in one task, "
            f"and there are {show_size(layout.exclusive_bytes)}; allow memory={memory_for_alone(needed, layout):_}, or ask "
            "for fewer clusters (num_clusters=)"
        )
    if not barrier.fits_on_device:
        return
    require_gpu(name, layout)
    on_device = fit_device_bytes(clusters, barrier.width)
    if on_device > layout.device_bytes:
        raise BudgetError(
            f"{name}: k-means with {clusters:,} clusters of {barrier.width:,} numbers needs {show_size(on_device)} of a GPU, "
            f"and {show_size(layout.device_bytes)} of each may be used; allow more with start_cluster(device_memory=), ask for "
            "fewer clusters (num_clusters=), or say k_means='scikit-learn'"
        )


def require_gpu(name: str, layout: Layout) -> None:
    """Raise `BudgetError` if workers have no GPU to find clusters on."""
    if not layout.device_bytes:
        raise BudgetError(
            f"{name}: k_means='cuml' computes on a GPU, and the workers here have none; start_cluster(gpus='auto') gives each "
            "one where there are GPUs, or say k_means='scikit-learn'"
        )
