# SPDX-License-Identifier: Apache-2.0
"""Settings of a drop of near duplicates, which all its stages share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from curator_df.core.files.storage import Folder
from curator_df.core.ranges.source import Ranges
from curator_df.dedup.near.row_values import same_texts, text_bands, text_contents, text_similarities, texts_of
from curator_df.exchange.exchange import Keep
from curator_df.exchange.keys import Keys
from curator_df.kernels.minhash.scheme import Scheme

EDGE_WORDS = 3
"""Words of an edge: address of a row, address of another, bits of their similarity (a float64; NaN while unknown)."""


@dataclass(frozen=True)
class KeptSignatures:
    """Signatures of rows in another table, with which the rows of a table are compared; none of these rows is dropped."""

    program: Any = field(metadata={"identity": False})
    """Program (`core.planning.program.Program`) that ends with the signatures."""
    ranges: Ranges = field(metadata={"identity": False})
    """Ranges of its input."""
    column: str
    """Column of the signatures."""
    first_address: int
    """Offset that is added to the address of each row, beyond all addresses of the table."""
    identity: str
    """Digest of the program and its input."""


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
    reason: str
    """Drop reason of the other rows, for the receipt."""
    bands_per_iteration: int | None = field(default=None, metadata={"identity": False})
    """Number of bands compared before their pairs are merged with the known ones; None derives it from the budget."""
    home: Folder | None = field(default=None, metadata={"identity": False})
    """Folder that stores the completed stage, as in `exchange.key_drop.KeyDrop`."""
    columns: tuple[str, ...] = field(default=(), metadata={"identity": False})
    """Columns that ``bands`` and ``contents`` read."""
    text_columns: tuple[str, ...] = field(default=(), metadata={"identity": False})
    """Columns that ``texts`` reads."""
    against: KeptSignatures | None = None
    """Kept signatures that the rows are compared with, in addition to each other."""
    measure: str = field(default="", metadata={"identity": False})
    """Name of the similarity, for rejects."""
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
        self, texts: Any, are_kept: npt.NDArray[np.bool_], pairs: npt.NDArray[np.int64], memory_bytes: int
    ) -> npt.NDArray[np.float64]:
        """Return the similarities of pairs of places in ``texts``, of which ``are_kept`` marks those of kept signatures."""
        return text_similarities(texts, are_kept, pairs, memory_bytes, text=self.text, scheme=self.scheme)
