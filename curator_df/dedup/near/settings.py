# SPDX-License-Identifier: Apache-2.0
"""Settings of a drop of near duplicates, which all its stages share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from curator_df.core.files.storage import Folder
from curator_df.core.ranges.source import Ranges
from curator_df.exchange.exchange import Keep
from curator_df.exchange.keys import Keys

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
    """Settings of a drop of near duplicates: what it takes from a block, and what it compares. Its functions are module-level."""

    bands: Callable[..., tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]]
    """Function ``bands(block, **parameters)``: returns band hashes, shape (rows, bands), and which rows have any."""
    contents: Callable[..., Keys]
    """Function ``contents(block, **parameters)``: returns 128-bit hashes of the texts, and values to choose kept rows by."""
    same: Callable[..., npt.NDArray[np.uint64]]
    """Function ``same(hashes, have_shingles, **parameters)``: returns hashes; rows with equal ones are joined uncompared."""
    checks: Callable[..., Keys]
    """Function ``checks(block, **parameters)``: returns these hashes alone, by which the last pass recognizes the rows."""
    texts: Callable[..., Any] = field(metadata={"identity": False})
    """Function ``texts(block, rows, **parameters)``: returns a pyarrow large_string or large_binary array."""
    similarities: Callable[..., npt.NDArray[np.float64]]
    """Function ``similarities(texts, are_kept, pairs, memory_bytes, **parameters)`` for pairs of indices into ``texts``;
    ``are_kept`` marks those that are kept signatures.
    """
    components: Callable[..., npt.NDArray[np.int64]] = field(metadata={"identity": False})
    """Function ``components(ids, batches)``: returns the smallest vertex of the component of each of the ascending ``ids``."""
    parameters: Mapping[str, Any]
    """Keyword arguments of the functions."""
    num_bands: int
    """Number of bands of a row."""
    anchors: int
    """Number of first rows of a bucket with which the others are compared."""
    verify: float | None
    """Minimum similarity of a joined pair; None joins all rows that share a bucket with an anchor."""
    keep: Keep
    """Row of a group to keep."""
    reason: str
    """Drop reason of the other rows, for the receipt."""
    keep_rows: Callable[[Any, npt.NDArray[np.bool_]], Any] = field(metadata={"identity": False})
    """Function that returns the rows of a block for which a mask is True."""
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
        parameters = {**self.parameters, "text": None, "ranked_by": None, "signatures": column}
        columns = (column,)
        return dataclasses.replace(self, parameters=parameters, keep="first", columns=columns, text_columns=columns)

    @property
    def ranks_rows(self) -> bool:
        """Whether the kept rows are chosen by a value."""
        return self.keep in ("largest", "smallest")

    def of(self, block: Any) -> Keys:
        """Return the keys by which the last pass recognizes the rows of the first."""
        return self.checks(block, **self.parameters)
