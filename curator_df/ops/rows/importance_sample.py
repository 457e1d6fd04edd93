# SPDX-License-Identifier: Apache-2.0
"""Sample rows by a weight: `sample_by_importance` keeps the rows of which weight plus a random number is largest.

A first pass writes a key of 8 bytes for each row. The client finds the limit among them by histograms of 16 bits each, so its
memory does not depend on the number of rows. The last pass computes the keys again, and keeps the rows above the limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt

from curator_df.arguments import require_integer, require_number
from curator_df.core.columns import require_columns
from curator_df.core.fingerprint import fingerprint
from curator_df.core.planning.lowering import require_addresses
from curator_df.core.planning.program import DiskNeed, Pending, PendingPass, Program, StageStart, Step, with_columns
from curator_df.core.planning.row_estimate import estimate_kept
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.journal import Journal
from curator_df.core.ranges.price import Price
from curator_df.core.ranges.range_action import OfRange, RangeAction, changed_rows
from curator_df.core.ranges.sink import StageSink
from curator_df.errors import ParameterError, SchemaError
from curator_df.files.storage import FileRecord, Folder, NewFile
from curator_df.io.streams.file_stream import open_file
from curator_df.kernels.rows.keep_rows import keep_rows
from curator_df.kernels.rows.row_sample import random_numbers
from curator_df.ops.duplicates.exact import refuse_block
from curator_df.ops.host_only import require_host

OPERATOR = "sample_by_importance"
NOT_SAMPLED, NO_WEIGHT = "not_sampled", "no_importance"
PEAK_FACTOR = 1.6
"""Memory multiplier: the kept rows, and about 40 bytes for the numbers of a row of 100 bytes."""
KEY_FACTOR = 0.5
"""Memory multiplier of the first pass: the numbers of a row alone."""
READ_KEYS = 1 << 20
"""Keys that are read together."""
DIGIT_BITS = 16
"""Bits of a key that one histogram counts."""
UNIT = 2.0**20
"""Random numbers are rounded to its inverse, so that the last bit of a logarithm does not depend on the processor."""
Keys = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Limit:
    """Rows that are kept, by their keys."""

    key: int
    """Rows with larger keys are kept."""
    ties: npt.NDArray[np.int64] = field(repr=False)
    """Rows of each range with this key that are kept too, the first ones; shape (ranges,)."""
    rows: npt.NDArray[np.int64] = field(repr=False)
    """Rows of each range, shape (ranges,)."""
    checksums: npt.NDArray[np.uint64] = field(repr=False)
    """Sum of the keys of each range, modulo 2**64, shape (ranges,)."""


@dataclass(frozen=True)
class ImportanceSample(Pending):
    """Deferred sample, which needs the weights of all rows."""

    importance: str
    """Column of the weights."""
    rows: int | None
    """Number of rows to keep; None if a fraction is."""
    fraction: float | None
    """Fraction of the rows with a weight."""
    noise: bool
    """Whether a random number is added to each weight."""
    seed: int
    """Seed of these numbers."""

    def passes(self, name: str) -> Sequence[PendingPass]:
        """Return the pass that writes keys."""
        return [PendingPass(f"weights for {name}", "write the weights of rows", KEY_FACTOR)]

    def disk_need(self, name: str, start: StageStart) -> DiskNeed | None:
        """Return the disk space for a key of each row."""
        size = 8 * estimate_kept(start.before, start.ranges)
        return DiskNeed(name, {"weights": size}, size)

    def is_whole(self, stage: Folder, ranges: int) -> bool:
        """Return whether the keys of all ranges were written."""
        return Journal(stage).records().keys() >= set(range(ranges))

    def prepare(self, runner: Any, before: Program, step: Step) -> Limit:
        """Write the keys of all rows, and find the limit."""
        before = with_columns(before, (self.importance,))
        with runner.open_stage(before, step) as stage:
            sink = KeySink(stage.home, self)
            written = stage.stream(f"{step.name}: weights", before, (self.importance,), sink, runner.ranges)
            files = [[file.name for file in record.files] for record in written]
            limit, ties = self._found(stage.home, files)
        rows = np.array([record.rows_written for record in written], dtype=np.int64)
        checksums = np.array([record.summary["key_checksum"] for record in written], dtype=np.uint64)
        return Limit(limit, ties, rows, checksums)

    def _found(self, home: Folder, files: list[list[str]]) -> tuple[int, npt.NDArray[np.int64]]:
        """Return the limit, and how many rows of each range with this key are kept."""

        def keys() -> Iterator[tuple[int, Keys]]:
            for number, names in enumerate(files):
                for name in names:
                    yield from ((number, part) for part in read_keys(home, name))

        weighed = sum(int(np.count_nonzero(part)) for _, part in keys())
        wanted = round(self.fraction * weighed) if self.fraction is not None else self.rows
        limit, ties = largest(lambda: (part for _, part in keys()), min(int(wanted or 0), weighed))
        equal = np.zeros(len(files), dtype=np.int64)
        for number, part in keys() if ties else ():
            equal[number] += int(np.count_nonzero(part == np.uint64(limit)))
        return limit, np.clip(ties - (np.cumsum(equal) - equal), 0, equal)

    def keys(self, block: Any) -> tuple[Keys, npt.NDArray[np.float64]]:
        """Return the key of each row, 0 if it has no weight, and the number that the key stands for."""
        values = block[self.importance].to_numpy(dtype=np.float64, na_value=np.nan)
        if self.noise:
            identities = block.index.to_numpy().astype(np.int64).view(np.uint64)
            chance = np.clip(random_numbers(identities, self.seed, OPERATOR), 2.0**-54, 1 - 2.0**-53)
            values = values + np.rint(-np.log(-np.log(chance)) * UNIT) / UNIT
        return sortable(values), values

    def resolved(self, prepared: Limit) -> RangeAction:
        """Return the action that keeps rows in the last pass."""
        return KeepSampled(self, prepared)


def sortable(values: npt.NDArray[np.float64]) -> Keys:
    """Return numbers as integers of the same order, 0 for NaN.

    Examples
    --------
    >>> keys = sortable(np.array([-1.0, -0.5, 0.0, 2.0, np.nan]))
    >>> bool((keys[:4] == np.sort(keys[:4])).all()), int(keys[4])
    (True, 0)
    """
    bits = (values + 0.0).view(np.uint64)  # -0.0 becomes 0.0
    sign = np.uint64(1 << 63)
    keys: Keys = np.where(bits & sign, ~bits, bits | sign)
    keys[np.isnan(values)] = 0
    return keys


def largest(parts: Any, wanted: int) -> tuple[int, int]:
    """Return the limit above which there are at most ``wanted`` keys, and how many equal to it complete them.

    Examples
    --------
    >>> keys = np.array([3, 9, 0, 9, 70_000, 2], dtype=np.uint64)
    >>> largest(lambda: iter([keys[:3], keys[3:]]), 2), largest(lambda: iter([keys]), 5), largest(lambda: iter([keys]), 0)
    ((9, 1), (2, 1), (18446744073709551615, 0))
    """
    if not wanted:
        return (1 << 64) - 1, 0
    prefix, left = 0, wanted
    for shift in range(64 - DIGIT_BITS, -1, -DIGIT_BITS):
        counts = np.zeros(1 << DIGIT_BITS, dtype=np.int64)
        for part in parts():
            of_prefix = part if shift + DIGIT_BITS == 64 else part[part >> np.uint64(shift + DIGIT_BITS) == prefix]
            digits = (of_prefix >> np.uint64(shift)) & np.uint64((1 << DIGIT_BITS) - 1)
            counts += np.bincount(digits.astype(np.int64), minlength=1 << DIGIT_BITS)
        above = np.cumsum(counts[::-1])[::-1] - counts
        digit = int(np.flatnonzero(above < left)[0])
        prefix, left = prefix << DIGIT_BITS | digit, left - int(above[digit])
    return prefix, left


def read_keys(home: Folder, name: str) -> Iterator[Keys]:
    """Read the keys of a range in parts."""
    with open_file(home.path(name) if home.is_local else f"{home.url}/{name}", home.options) as file:
        while content := file.read(8 * READ_KEYS):
            yield np.frombuffer(content, dtype="<u8")


@dataclass(frozen=True)
class KeySink(StageSink):
    """Sink of the first pass, which writes a key for each row."""

    folder: Folder
    """Folder of the files."""
    sample: ImportanceSample
    """Deferred sample."""
    writer_factor: float = KEY_FACTOR
    """Peak extra memory as a multiple of the block's bytes."""

    @property
    def fingerprint(self) -> str:
        """Digest of the settings that determine the content."""
        return fingerprint(self.sample)

    def open(self, number: int, meta: Any, buffer_bytes: int) -> _RangeKeys:  # noqa: ARG002 - the face of a sink
        """Create the file of a range."""
        return _RangeKeys(self, number)


class _RangeKeys:
    def __init__(self, sink: KeySink, number: int) -> None:
        self._sample, self._checksum, self._rows = sink.sample, 0, 0
        self._file = NewFile(sink.folder, f"keys/part-{number:06d}.u8")

    def append(self, block: Any) -> None:
        keys, _ = self._sample.keys(block)
        self._checksum = (self._checksum + _sum(keys)) % (1 << 64)
        self._rows += len(keys)
        self._file.write(np.ascontiguousarray(keys, dtype="<u8"))

    def commit(self) -> list[FileRecord]:
        return [self._file.commit(self._rows)]

    def discard(self) -> None:
        self._file.discard()

    @property
    def summary(self) -> dict[str, int]:
        return {"key_checksum": self._checksum}


def _sum(keys: Keys) -> int:
    return int(keys.sum(dtype=np.uint64))


@dataclass(frozen=True)
class KeepSampled(RangeAction):
    """Resolved form of a deferred sample in the last pass."""

    pending: ImportanceSample
    """Deferred sample."""
    limit: Limit
    """Rows that are kept."""

    def of_range(self, number: int) -> OfRange:
        """Return the object that keeps the rows of one range, once."""
        return _RangeSample(self, number)


class _RangeSample:
    def __init__(self, action: KeepSampled, number: int) -> None:
        self._sample, self._limit, self._number = action.pending, action.limit, number
        self._ties = int(action.limit.ties[number])
        self._rows = self._checksum = 0

    def run(self, block: Any) -> Outcome:
        require_host(block, OPERATOR)
        keys, values = self._sample.keys(block)
        self._rows += len(keys)
        self._checksum = (self._checksum + _sum(keys)) % (1 << 64)
        limit = np.uint64(self._limit.key)
        keep = keys > limit
        if self._ties:
            equal = np.flatnonzero(keys == limit)[: self._ties]
            keep[equal] = True
            self._ties -= len(equal)
        if keep.all():
            return Outcome(block)
        has_none = (keys == 0) & ~keep
        dropped = {NOT_SAMPLED: int((~keep & ~has_none).sum()), NO_WEIGHT: int(has_none.sum())}
        return Outcome(
            keep_rows(block, keep),
            {reason: count for reason, count in dropped.items() if count},
            rejects=lambda: (keep_rows(block, ~keep), self._why(values[~keep])),
        )

    def _why(self, values: npt.NDArray[np.float64]) -> dict[str, Any]:
        limit = self._limit.key
        bits = np.array([limit & ~(1 << 63) if limit >> 63 else ~limit & ((1 << 64) - 1)], dtype=np.uint64)
        return {
            "reason": np.where(np.isnan(values), NO_WEIGHT, NOT_SAMPLED).tolist(),
            "rule": [f"importance={self._sample.importance}, seed={self._sample.seed}"] * len(values),
            "value": values,
            "threshold": [float(bits.view(np.float64)[0])] * len(values),
        }

    def finish(self, step: str) -> None:
        expected = int(self._limit.rows[self._number]), int(self._limit.checksums[self._number])
        if (self._rows, self._checksum) != expected:
            raise changed_rows(step, self._number, expected[0], self._rows, "")


def sample_by_importance(
    df: dd.DataFrame,
    *,
    rows: int | None = None,
    fraction: float | None = None,
    importance: str = "importance",
    noise: bool = True,
    seed: int = 0,
) -> dd.DataFrame:
    """Keep a random sample of the rows in which those with a large weight are more likely, after DSIR.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    rows : int, optional
        Number of rows to keep; all rows with a weight if there are fewer.
    fraction : float, optional
        Share of the rows with a weight to keep, instead of ``rows``: more than 0 and at most 1.
    importance : str, default "importance"
        Column of the weights: natural logarithms, as `add_importance` adds them. Rows without a weight (null, NaN) are
        dropped.
    noise : bool, default True
        Sample without replacement, in proportion to the exponential of the weight. False keeps the rows with the largest
        weights.
    seed : int, default 0
        Another seed gives another sample.

    Returns
    -------
    dask.dataframe.DataFrame
        The table with a deferred step. The writers and `checkpoint` run it; in a cluster of curator_df, so do ``head()``,
        ``len()`` and ``compute()``. Dropped rows are counted as ``not_sampled`` or ``no_importance``.

    Raises
    ------
    ColumnError
        If the column of weights is missing.
    SchemaError
        If it is not a column of numbers.
    ParameterError
        If not exactly one of ``rows`` and ``fraction`` is given, or one is out of range.
    ExpressionError
        If rows share an address (after `split_documents`).
    UnsupportedBackendError
        If the blocks are cuDF blocks.
    PendingError
        From ``head()``, ``len()`` or ``compute()`` on the result outside a cluster of curator_df.

    See Also
    --------
    add_importance, sample_rows

    Notes
    -----
    Rows: subset, order kept. Columns: same. Backends: pandas. Peak extra memory: 1.6 x block, and 36 MB in this process
    while the limit is found. Computes: no; writing reads the input once more.

    To each weight a random number of Gumbel's distribution is added, which depends on the row ID and the seed alone,
    and the rows with the largest sums are kept [1]_. The sample does not depend on blocks or workers, and a larger one contains
    a smaller one of the same seed. With another list of files rows have other addresses. A pass over the input writes 8 bytes
    for each row to find the limit.

    References
    ----------
    .. [1] Xie et al., Data Selection for Language Models via Importance Resampling, 2023, https://arxiv.org/abs/2302.03169

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["a", "b"], "importance": [-3.0, 2.0]}), npartitions=1)
    >>> sample_by_importance(docs, rows=1).columns.tolist()
    ['text', 'importance']
    """
    require_columns(df, OPERATOR, importance)
    require_host(df._meta, OPERATOR)
    if getattr(df.dtypes[importance], "kind", "O") not in "iuf":
        raise SchemaError(
            f"{OPERATOR}: importance={importance!r} needs numbers, but the column holds {df.dtypes[importance]}. Name "
            "another column"
        )
    _require_size(rows, fraction)
    require_integer(OPERATOR, "seed", seed)
    if not -(1 << 63) <= seed < 1 << 63:
        raise ParameterError(f"{OPERATOR}: seed={seed} is not a 64-bit integer. Use a whole number such as 0")
    if not isinstance(noise, bool):
        raise ParameterError(f"{OPERATOR}: noise={noise!r} must be True or False")
    require_addresses(df, OPERATOR)
    kernel = BlockKernel(
        OPERATOR,
        refuse_block,
        {"operator": OPERATOR},
        price=Price(PEAK_FACTOR, is_measured=True),
        pending=ImportanceSample(importance, rows, None if fraction is None else float(fraction), noise, seed),
    )
    return map_blocks(df, kernel, meta=df._meta)


def _require_size(rows: int | None, fraction: float | None) -> None:
    if (rows is None) == (fraction is None):
        raise ParameterError(f"{OPERATOR}: give either rows= or fraction=; got rows={rows!r} and fraction={fraction!r}")
    if rows is not None:
        require_integer(OPERATOR, "rows", rows)
        if rows < 1:
            raise ParameterError(f"{OPERATOR}: rows={rows} must be at least 1")
    if fraction is not None:
        require_number(OPERATOR, "fraction", fraction)
        if not 0 < fraction <= 1:
            raise ParameterError(f"{OPERATOR}: fraction={fraction} must be more than 0 and at most 1")
