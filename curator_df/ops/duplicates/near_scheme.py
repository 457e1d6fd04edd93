# SPDX-License-Identifier: Apache-2.0
"""Settings of a search for near duplicates as a value: its scheme, and the rows to compare with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from curator_df.core.columns import require_columns
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.row_estimate import ROW_BYTES_GUESS
from curator_df.core.ranges.source import Ranges
from curator_df.errors import CuratorError
from curator_df.exchange.exchange import Linkage
from curator_df.exchange.keys import KeptRows, address_after
from curator_df.kernels.minhash.scheme import Scheme
from curator_df.kernels.minhash.stored_signatures import require_stored
from curator_df.ops.duplicates.exact import Best, Survivor
from curator_df.ops.filters.published import scheme_of, schemes

SIGNATURES = "minhash"
"""Column that `add_minhash` makes, by default."""
MANY_ROWS = 1_000_000_000
"""Number of rows from which on 64-bit hashes are chosen."""


def chosen_scheme(df: Any, operator: str, scheme: Scheme | str) -> Scheme:
    """Return a scheme, or the published one of this name; the default one has 64-bit hashes if there are many rows."""
    found = scheme_of(operator, scheme)
    if found == schemes()["default"]:
        return found.replace(use_64_bit_hash=has_many_rows(df))
    return found


def has_many_rows(df: Any) -> bool:
    """Tell, from sizes and footers alone, whether there are about a billion rows."""
    try:
        source = lower(df).source
    except CuratorError:
        return False  # a table that cannot be run says so when it is
    rows = source.about_rows()
    return (source.text_bytes / ROW_BYTES_GUESS if rows is None else rows) >= MANY_ROWS


@dataclass(frozen=True)
class NearQuestion:
    """Settings of `find_near_duplicates` and `drop_near_duplicates` that change their result."""

    text: str | None
    """The text column."""
    scheme: Scheme
    """Shingles, hashes and bands."""
    jaccard_threshold: float | None
    """Least similarity of a pair that is joined."""
    keep: Survivor | Best
    """Row of a group that stays."""
    signatures: str | None
    """Column of signatures."""
    against: KeptRows | None
    """Rows of another table."""
    linkage: Linkage
    """Kind of links between rows."""
    ignore_common: float | None = None
    """Share of documents above which a shingle is ignored."""

    def to_json(self) -> dict[str, Any]:
        """Return the settings in the form that is stored with the groups."""
        against = self.against
        fields = {name: value for name, value in vars(self.scheme).items() if name not in ("name", "source")}
        return {
            "text": self.text,
            "scheme": fields,
            "jaccard_threshold": self.jaccard_threshold,
            "keep": vars(self.keep) if isinstance(self.keep, Best) else self.keep,
            "signatures": self.signatures,
            "linkage": self.linkage,
            "ignore_common": self.ignore_common,
            "against": against and {name: getattr(against, name) for name in ("column", "first_address", "identity")},
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> NearQuestion:
        """Return what was asked; rows of another table cannot be read any more."""
        keep, against = stored["keep"], stored["against"]
        return cls(
            stored["text"],
            Scheme(**stored["scheme"]),
            stored["jaccard_threshold"],
            Best(**keep) if isinstance(keep, dict) else keep,
            stored["signatures"],
            against and KeptRows(None, Ranges(np.empty((0, 4), dtype=np.int64)), **against),
            stored.get("linkage", "transitive"),  # groups of earlier releases
            stored.get("ignore_common"),
        )


def kept_signatures(df: Any, operator: str, signatures: str | None, against: Any, scheme: Scheme) -> KeptRows | None:
    """Return the rows of another table with which those of a table are to be compared."""
    if against is None:
        return None
    column = SIGNATURES if signatures is None else signatures
    require_columns(against, f"{operator}: against=", column)
    require_stored(against.dtypes[column], column, scheme)
    return KeptRows.of(against[[column]], column, address_after(df))
