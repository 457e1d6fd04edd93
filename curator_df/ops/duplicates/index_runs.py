# SPDX-License-Identifier: Apache-2.0
"""Compare a removal of duplicates with a stored index of documents, lock the index, and append the documents that are kept."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import pandas as pd

from curator_df.core.backend import require_backend
from curator_df.core.columns import require_columns
from curator_df.core.planning.program import Program
from curator_df.core.ranges.blocks import BlockKernel
from curator_df.core.ranges.journal import Journal, OnExisting
from curator_df.core.ranges.price import Price
from curator_df.core.ranges.sink import Sink
from curator_df.errors import ParameterError, ResumeError, SchemaError
from curator_df.exchange.keys import KeptRows, address_after
from curator_df.exchange.stored_keys import KEY_BYTES, KEY_COLUMN, ROW_BYTES, pack_keys
from curator_df.files.storage import Folder
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import TARGET_FILE_BYTES, ParquetFormat
from curator_df.kernels.minhash.scheme import Scheme
from curator_df.kernels.minhash.stored_signatures import pack_signatures
from curator_df.kernels.rows.content_hash import Normalize
from curator_df.kernels.rows.either_backend import block_hashes
from curator_df.memory.sizes import show_count
from curator_df.ops.duplicates.index import BASE, SIGNATURE_COLUMN, TEXT, Base, Index, plain_setting
from curator_df.ops.host_only import FIXED_WIDTH


@dataclass(frozen=True)
class IndexRun:
    """Folder of an index for the rows that a run keeps."""

    index: Index
    """Index to append to."""
    name: str
    """Name of the run in the index."""
    base: Base
    """State of the index that the run is decided with."""
    output: str
    """URL of the output of the run."""
    is_again: bool
    """Whether it replaces what an earlier run appended."""

    @property
    def appends_to(self) -> str:
        """Path of the index: no step may follow, since a row that it drops would be in the index, but not in the corpus."""
        return self.index.path

    @property
    def guard(self) -> IndexLock:
        """Lock of the index for the run."""
        return IndexLock(self)

    @property
    def sink(self) -> Sink:
        """Sink of the folder."""
        home = self.index._folder.below(f"runs/{self.name}")
        return FileSink(home, ParquetFormat("zstd"), TARGET_FILE_BYTES)

    def kernel(self, program: Program) -> tuple[BlockKernel, Any]:
        """Return the kernel that makes the rows of the index from those of a program, and their empty block."""
        index = self.index
        scheme = None if index.scheme is None else dataclasses.replace(index.scheme, name="", source="")
        width = KEY_BYTES if scheme is None else 24 + scheme.signature_bytes
        parameters: dict[str, Any] = {
            "run": self.name,
            "columns": index.subset,
            "normalize": index.normalize,
            "scheme": scheme,
            "id": index.id,
            "source": index.source_column,
        }
        price = Price(round(2.0 + (width + 32) / ROW_BYTES, 1))
        kernel = BlockKernel("index", index_block, parameters, price=price)
        return kernel, index_block(program.meta, **parameters)


class IndexLock:
    """Lock of an index for the run that appends to it."""

    def __init__(self, run: IndexRun) -> None:
        self._run = run
        self._journal = Journal(run.index._folder)

    def __enter__(self) -> Self:
        """Lock the index, and check that it is as the run expects."""
        self._journal.__enter__()
        try:
            self.check()
        except BaseException as exc:
            self._journal.__exit__(type(exc), exc, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._journal.__exit__(kind, exc, trace)

    def check(self) -> None:
        """Raise an error unless the index is as the run expects."""
        run, index = self._run, self._run.index
        now = index._state()
        seen = Base(tuple(name for name in now.runs if name != run.name), now.removals)
        if (run.is_again or not index._is_complete(run.name)) and seen != run.base:
            raise ResumeError(
                f"the index {index.path!r} has changed since the run that writes {run.output!r} began: it had "
                f"{show_count(len(run.base.runs), 'run')} and {show_count(run.base.removals, 'removal')}, and has "
                f"{len(seen.runs)} and {seen.removals}. Start the run again with on_existing='overwrite'"
            )
        index._require_whole(run.base)

    def begin(self) -> None:
        """Store what the run is decided with, unless it was stored before."""
        folder, name = self._run.index._folder, f"runs/{self._run.name}/{BASE}"
        if not folder.exists(name):
            folder.write(name, json.dumps({"output": self._run.output, **vars(self._run.base)}, indent=1).encode())


def index_block(
    block: Any,
    *,
    run: str,
    columns: tuple[str, ...],
    normalize: Normalize | None,
    scheme: Scheme | None,
    id: str,  # noqa: A002 - what users call it
    source: str | None,
) -> pd.DataFrame:
    """Return the rows of an index for the rows of a block."""
    count = len(block)
    if scheme is None:
        column = KEY_COLUMN
        values = pack_keys(block_hashes(block, columns, normalize=normalize), len(columns), normalize)
    else:
        column, values = SIGNATURE_COLUMN, pack_signatures(block[columns[0]], scheme).array
    sources = pd.array([None] * count, dtype=TEXT) if source is None else block[source].astype(TEXT).array
    return pd.DataFrame(
        {
            "run": pd.array([run] * count, dtype=TEXT),
            "source": sources,
            "id": block[id].astype(TEXT).array,
            column: values,
        },
        index=block.index,
    )


@dataclass(frozen=True)
class IndexUse:
    """Use of an index by a deferred drop, which is bound to the state of the index when its output is known."""

    index: Index
    """The index."""
    first_address: int
    """Offset of the addresses of its rows."""

    def bound(self, pending: Any, output: Folder | None, on_existing: OnExisting) -> Any:
        """Return a drop that compares with the documents of the index and, if it has an output, appends its own.

        A run that was begun, or is complete, is bound to the state that it was decided with.
        """
        index = self.index
        if output is None:
            return dataclasses.replace(pending, against=self._against(index._state()), side_output=None)
        own = next((name for name in index._names if index._base_of(name)["output"] == output.url), None)
        base = index._state()
        is_again = own is not None and on_existing == "overwrite"
        if own is not None and is_again:
            self._require_last(own)
            base = Base(tuple(name for name in base.runs if name != own), base.removals)
        elif own is not None:
            stored = index._base_of(own)
            base = Base(tuple(stored["runs"]), stored["removals"])
        name = own or index._new_name
        return dataclasses.replace(
            pending, against=self._against(base), side_output=IndexRun(index, name, base, output.url, is_again)
        )

    def _require_last(self, own: str) -> None:
        later = [name for name in self.index._names if own in self.index._base_of(name)["runs"]]
        if later:
            raise ParameterError(
                f"on_existing='overwrite' would replace the documents of run {own} in the index {self.index.path!r}, but the "
                f"later run {later[0]} was already compared with them. Remove the documents of run {own} with "
                "index.remove(...), and write to another folder"
            )
        removal = next((one["where"] for one in self.index._removals() if own in one["runs"]), None)
        if removal is not None:
            raise ParameterError(
                f"on_existing='overwrite' would write run {own} of the index {self.index.path!r} again. The earlier removal "
                f"of {removal!r} still applies to this run, so it would remove the new documents, too. Write to another "
                "folder"
            )

    def _against(self, base: Base) -> Any:
        table = self.index._documents(base, [self.index._column])
        if table is None:
            return None
        kept = KeptRows.of(table, self.index._column, self.first_address)
        return dataclasses.replace(kept, identity=self.index._identity(base))  # not by places and times of its files


def index_use(df: Any, operator: str, index: Any, asked: dict[str, Any]) -> IndexUse:
    """Return the use of an index by an operator, after checks that they compare the same.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        Table of the operator.
    operator : str
        Name of the operator.
    index : Index
        The index.
    asked : dict
        Settings of the operator that must be those of the index, by name.
    """
    if not isinstance(index, Index):
        raise ParameterError(
            f"{operator}: index={index!r} is not an index. Open one with open_index(path), and pass what it returns"
        )
    for name, wanted in asked.items():
        found, value = plain_setting(getattr(index, name)), plain_setting(wanted)
        if found != value:
            raise ParameterError(
                f"{operator}: the index {index.path!r} has {name}={found!r}, and this drop has {name}={value!r}. "
                "Use the settings of the index, or another index"
            )
    require_columns(df, operator, index.id, *([] if index.source_column is None else [index.source_column]))
    require_backend(df._meta, f"{operator} with index=", "pandas", because=FIXED_WIDTH)
    for column in (index.id, index.source_column):
        if column is not None and getattr(df.dtypes[column], "kind", "O") not in "OiuU":
            raise SchemaError(
                f"{operator}: the column {column!r} has dtype {df.dtypes[column]}, and documents of an index are named by text "
                "or integers. Convert it with astype('string[pyarrow]')"
            )
    return IndexUse(index, address_after(df))


def require_alone(operator: str, keep: str, others: dict[str, Any]) -> None:
    """Raise `ParameterError` for what cannot be used with an index.

    Parameters
    ----------
    operator : str
        Name of the operator.
    keep : str
        Row of a group to keep.
    others : dict
        Parameters that must be None, by name.
    """
    for name, value in others.items():
        if value is not None:
            raise ParameterError(
                f"{operator}: index= has its own documents and folder, so {name}= cannot be used with it. Leave out {name}=, or "
                "leave out index="
            )
    if keep == "none":
        raise ParameterError(
            f"{operator}: with index=, a row is dropped because of a row that is kept, and keep='none' keeps no row of a group. "
            "Use another keep="
        )
