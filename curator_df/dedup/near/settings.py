# SPDX-License-Identifier: Apache-2.0
"""Settings of a drop of near duplicates, which all its stages share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from curator_df.core.backend import is_on_device
from curator_df.core.host_blocks import host_block
from curator_df.exchange.content_keys import content_keys, ranked_keys
from curator_df.exchange.exchange import Keep, Linkage
from curator_df.exchange.keys import KeptRows, Keys
from curator_df.files.row_sort import merge_row_bytes
from curator_df.files.storage import Folder
from curator_df.kernels.minhash.jaccard import NOTHING_IGNORED, jaccard_similarities
from curator_df.kernels.minhash.residuals import residual_hashes
from curator_df.kernels.minhash.scheme import Scheme
from curator_df.kernels.minhash.signatures import (
    SPAN_ROWS,
    band_hashes,
    minhash_signatures,
    signature_bands,
    word_dtype,
)
from curator_df.kernels.minhash.stored_signatures import read_values, similarity_estimates, unpack_signatures
from curator_df.kernels.rows.content_hash import NULL_HASH, column_hashes
from curator_df.kernels.rows.either_backend import device_band_hashes
from curator_df.kernels.text.buffers import text_chunks

_LEAST_TABLE_BYTES = 1 << 16
KEY_WORDS = 3
"""Words of a key row: bucket, content and address."""


def text_bands(
    block: Any, *, text: str | None, scheme: Scheme, signatures: str | None
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """Return the band hashes of a block's rows, shape (rows, bands), and which have a shingle at all."""
    if signatures is None:
        hashes = (device_band_hashes if is_on_device(block) else band_hashes)(block[text], scheme)
    else:
        stored = unpack_signatures(block[signatures], scheme).signatures
        hashes = np.empty((len(block), scheme.num_bands), dtype=np.uint64)
        for start in range(0, len(block), SPAN_ROWS):
            part = np.ascontiguousarray(stored[start : start + SPAN_ROWS])
            hashes[start : start + SPAN_ROWS] = signature_bands(part, scheme)
    of_none = signature_bands(np.zeros((1, scheme.num_hashes), dtype=word_dtype(scheme)), scheme)
    return hashes, (hashes != of_none).any(axis=1)


def text_contents(
    block: Any, *, text: str | None, scheme: Scheme, ranked_by: str | None, signatures: str | None
) -> Keys:
    """Return the hashes of a block's unchanged texts, and the values by which the kept row of a group is chosen."""
    columns = () if text is None else (text,)
    if signatures is None:
        return content_keys(block, columns=columns, normalize=None, ranked_by=ranked_by)
    return ranked_keys(unpack_signatures(block[signatures], scheme).contents, block, columns, ranked_by)


def same_texts(
    hashes: npt.NDArray[np.uint64],
    have_shingles: npt.NDArray[np.bool_],
    scheme: Scheme,
) -> npt.NDArray[np.uint64]:
    """Return the hashes of texts, the empty one's for those of which ``normalize=`` leaves nothing; null stays apart."""
    nothing = ~have_shingles & (hashes != NULL_HASH).any(axis=1)
    if scheme.normalize is None or not nothing.any():
        return hashes
    return np.where(nothing[:, None], column_hashes(pd.Series([""], dtype="string[pyarrow]")), hashes)


def texts_of(
    block: Any,
    rows: npt.NDArray[np.int64],
    *,
    text: str | None,
    signatures: str | None,
) -> Any:
    """Return what some rows of a block are compared by: texts (null counts as empty), or signatures without them."""
    if text is not None:
        some = host_block(block[[text]].iloc[rows])[text] if is_on_device(block) else block[text].iloc[rows]
        chunks = text_chunks(some).cast(pa.large_string())
        return chunks.combine_chunks().fill_null("")
    stored: Any = block[signatures].iloc[rows].array.__arrow_array__()
    return pa.chunked_array([stored]).cast(pa.large_binary()).combine_chunks()


def text_similarities(
    texts: pa.LargeBinaryArray,
    are_signatures: npt.NDArray[np.bool_],
    pairs: npt.NDArray[np.int64],
    memory_bytes: int,
    *,
    text: str | None,
    scheme: Scheme,
    ignored: npt.NDArray[np.uint64] = NOTHING_IGNORED,
) -> npt.NDArray[np.float64]:
    """Return the Jaccard similarities of pairs of places in ``texts``: estimated where one has a signature only.

    Each pair has two, shape (pairs, 2): that of all shingles, and that of those that are not ignored.
    """
    estimated = are_signatures[pairs].any(axis=1) if text is not None else np.ones(len(pairs), dtype=np.bool_)
    found = np.empty((len(pairs), 2), dtype=np.float64)
    if not estimated.all():
        series = _series(texts)
        table_bytes = max(memory_bytes, _LEAST_TABLE_BYTES)
        exact = pairs[~estimated]
        exactly = jaccard_similarities(series, series, exact, scheme, table_bytes=table_bytes, ignored=ignored)
        found[~estimated] = exactly.reshape(len(exact), -1)
    places = np.flatnonzero(estimated)
    step = max(memory_bytes // (4 * scheme.signature_bytes), 1)
    for start in range(0, len(places), step):
        some = places[start : start + step]
        found[some] = _estimates(texts, are_signatures | (text is None), pairs[some], scheme)[:, None]
    return found


def _estimates(texts: Any, are_signatures: Any, pairs: Any, scheme: Scheme) -> npt.NDArray[np.float64]:
    wanted, which = np.unique(pairs, return_inverse=True)
    which = which.reshape(-1, 2)
    hashes = np.empty((len(wanted), scheme.num_hashes), dtype=word_dtype(scheme))
    stored = np.flatnonzero(are_signatures[wanted])
    if len(stored):
        values = texts.take(pa.array(wanted[stored])).buffers()[2]
        rows = np.frombuffer(values, dtype=np.uint8).reshape(len(stored), -1)
        hashes[stored] = read_values(rows, scheme, "what was stored").signatures[:, : scheme.num_hashes]
    plain = np.flatnonzero(~are_signatures[wanted])
    if len(plain):
        hashes[plain] = minhash_signatures(_series(texts.take(pa.array(wanted[plain]))), scheme)
    return similarity_estimates(hashes[which[:, 0]], hashes[which[:, 1]])


def _series(texts: Any) -> Any:
    dtype: Any = pd.StringDtype("pyarrow")
    return pd.Series(dtype.__from_arrow__(texts.view(pa.large_string())))


EDGE_WORDS = 3
"""Words of an edge: address of a row, address of another, bits of their similarity (a float64; NaN while unknown)."""
UNKNOWN = np.float64(np.nan).view(np.uint64)
"""Bits of an unknown similarity."""
IN_CROWD = np.uint64(0x7FF4_0000_0000_0000)
"""Bits of the unknown similarity of a row and the anchor of its crowd: another NaN, which sorts before `UNKNOWN`."""


@dataclass(frozen=True)
class NearSettings:
    """Settings of a drop of near duplicates: what it takes from a block, and what it compares."""

    text: str | None
    """Column of the texts; None if rows have signatures only."""
    scheme: Scheme
    """Scheme of the signatures."""
    ranked_by: str | None
    """Column by which the kept rows are chosen; None for a place in the input."""
    signatures: str | None
    """Column of stored signatures; None to compute them from the texts."""
    anchors: int
    """Number of first rows of a bucket with which the others are compared."""
    verify: float | None
    """Minimum similarity of a joined pair; None joins all rows that share a bucket with an anchor."""
    keep: Keep
    """Row of a group to keep."""
    linkage: Linkage
    """Whether a row is dropped because of a kept row that it is similar to, or because of any row of its group."""
    reason: str
    """Drop reason of the other rows, for the receipt."""
    ignore_common: float | None = None
    """Share of all documents; shingles of more documents do not make two texts similar. None ignores none."""
    bands_per_iteration: int | None = field(default=None, metadata={"identity": False})
    """Number of bands compared before their pairs are merged with the known ones; None derives it from the budget."""
    home: Folder | None = field(default=None, metadata={"identity": False})
    """Folder that stores the completed stage, as in `exchange.key_drop.KeyDrop`."""
    columns: tuple[str, ...] = field(default=(), metadata={"identity": False})
    """Columns that ``bands`` and ``contents`` read."""
    text_columns: tuple[str, ...] = field(default=(), metadata={"identity": False})
    """Columns that ``texts`` reads."""
    against: KeptRows | None = None
    """Kept signatures that the rows are compared with, in addition to each other."""
    measure: str = field(default="", metadata={"identity": False})
    """Name of the similarity, for rejects."""
    count_into: str | None = field(default=None, metadata={"identity": False})
    """New column with the number of rows that each kept row stands for; None for no column."""
    side_output: Any = field(default=None, metadata={"identity": False})
    """Folder of the index that the kept rows are appended to (`SideOutput`); None for none."""
    index: Any = field(default=None, metadata={"identity": False})
    """Index whose documents the rows are compared with (`ops.duplicates.index_runs.IndexUse`); None for none."""
    functions: tuple[Any, ...] = (text_bands, text_contents, same_texts, text_similarities)
    """Functions that make keys and similarities: a stage that other code made is not used."""
    of_parts: ClassVar[bool] = False
    """False, because the keys are those of whole rows."""

    @property
    def rule(self) -> str:
        """Condition for two rows to match, as rejects name it."""
        return "the same band" if self.verify is None else f"{self.measure} >= {self.verify:g}"

    @property
    def threshold(self) -> float | None:
        """Minimum similarity of two rows."""
        return self.verify

    @property
    def other_files(self) -> Sequence[str]:
        """Files of kept signatures, which follow those of the table; empty if stored results are read without their program."""
        program = None if self.against is None else self.against.program
        return () if program is None else tuple(program.source.files)

    @property
    def covers(self) -> bool:
        """Whether kept rows are chosen by a greedy cover. If none is kept, every row that has an edge goes."""
        return self.linkage == "direct" and self.keep != "none"

    @property
    def finds_crowds(self) -> bool:
        """Whether rows of crowded buckets are compared by their own shingles, which needs texts."""
        return self.verify is not None and self.text is not None

    @property
    def for_kept(self) -> NearSettings:
        """Return a copy for the rows of ``against``."""
        column = "" if self.against is None else self.against.column
        rows = {"text": None, "ranked_by": None, "signatures": column, "keep": "first"}
        return dataclasses.replace(self, **rows, columns=(column,), text_columns=(column,))  # type: ignore[arg-type]

    @property
    def num_bands(self) -> int:
        """Number of bands of a row."""
        return self.scheme.num_bands

    @property
    def ranks_rows(self) -> bool:
        """Whether the kept rows are chosen by a value."""
        return self.keep in ("largest", "smallest")

    def bands(self, block: Any) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
        """Return the band hashes of a block's rows, shape (rows, bands), and which rows have any."""
        return text_bands(block, text=self.text, scheme=self.scheme, signatures=self.signatures)

    def contents(self, block: Any) -> Keys:
        """Return 128-bit hashes of the texts, and values to choose kept rows by."""
        ranked_by = self.ranked_by
        return text_contents(block, text=self.text, scheme=self.scheme, ranked_by=ranked_by, signatures=self.signatures)

    def same(self, hashes: npt.NDArray[np.uint64], have_shingles: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
        """Return hashes, of which rows with equal ones are joined without comparison."""
        return same_texts(hashes, have_shingles, self.scheme)

    def of(self, block: Any) -> Keys:
        """Return the keys by which the last pass recognizes the rows of the first: the hashes of the texts alone."""
        return text_contents(block, text=self.text, scheme=self.scheme, ranked_by=None, signatures=self.signatures)

    def texts(self, block: Any, rows: npt.NDArray[np.int64]) -> Any:
        """Return what some rows of a block are compared by, a pyarrow large_string or large_binary array."""
        return texts_of(block, rows, text=self.text, signatures=self.signatures)

    def similarities(
        self,
        texts: Any,
        are_kept: npt.NDArray[np.bool_],
        pairs: npt.NDArray[np.int64],
        memory_bytes: int,
        ignored: npt.NDArray[np.uint64],
    ) -> npt.NDArray[np.float64]:
        """Return the similarities of pairs of places in ``texts``, of which ``are_kept`` marks those of kept signatures.

        Shape (pairs, 2): of all shingles, and of those that are not ignored.
        """
        text, scheme = self.text, self.scheme
        return text_similarities(texts, are_kept, pairs, memory_bytes, text=text, scheme=scheme, ignored=ignored)

    def residuals(
        self, texts: Any, pairs: npt.NDArray[np.int64], memory_bytes: int, ignored: npt.NDArray[np.uint64]
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """Return hashes of shingles that the first of two texts has and the second lacks, and the pair of each hash."""
        table_bytes = max(memory_bytes, _LEAST_TABLE_BYTES)
        return residual_hashes(_series(texts), pairs, self.scheme, table_bytes=table_bytes, ignored=ignored)


def default_bands_per_iteration(rows: int, num_bands: int, work_bytes: int) -> int:
    """Return the number of bands whose key rows fit into the working memory while they are merged; at least 1.

    Examples
    --------
    >>> default_bands_per_iteration(200_000, 20, 1_000_000_000), default_bands_per_iteration(20_000_000, 20, 3_300_000_000)
    (20, 1)
    """
    return max(min(work_bytes // max(rows * merge_row_bytes(KEY_WORDS), 1), num_bands), 1)
