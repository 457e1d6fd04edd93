# SPDX-License-Identifier: Apache-2.0
"""Several tables one after another in one run: `concat`, its source, and the steps that belong to one table alone."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from curator_df.arguments import choose, listed
from curator_df.core.backend import require_backend
from curator_df.core.columns import has_no_type, is_text, require_table
from curator_df.core.fingerprint import fingerprint
from curator_df.core.planning.lowering import current_spooler, lower, origin_of, spooled
from curator_df.core.planning.program import Program, Step
from curator_df.core.ranges.blocks import Action, BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.parameter_digests import Digested, printed_source
from curator_df.core.ranges.price import Price
from curator_df.core.ranges.source import ADDRESS, OFFSET_BITS, BadRow, Range, Ranges, RowChoice, Source
from curator_df.errors import ColumnError, ExpressionError, OperatorError, OversizeRowError, ParameterError, SchemaError
from curator_df.io.frames import MOST_FILES, empty_block
from curator_df.io.listing import Listing
from curator_df.io.output.spool import is_spooled, known_meta, pending_steps, stored_names
from curator_df.io.partitions import from_source
from curator_df.io.shuffle.sink import Taken, stored_schema

OPERATOR = "concat"
Alignment = Literal["same", "union"]
"""Columns of the result: those of every table, or of any table."""
ALIGN_FACTOR = 1.0
"""Peak extra memory of bringing a block to the columns of the result, as a multiple of its bytes: columns of another type."""


@dataclass(frozen=True)
class ConcatSource:
    """Source of the rows of several sources, one after another. Made by `concat`.

    The files of the sources are numbered on, so the row IDs of a source are its own, plus a constant.
    """

    parts: tuple[Source, ...]
    """Sources, in order."""

    @functools.cached_property
    def bases(self) -> npt.NDArray[np.int64]:
        """Number of the first file of each source, and the number of all files."""
        return np.cumsum([0, *(len(part.files) for part in self.parts)])

    @functools.cached_property
    def files(self) -> Sequence[str]:
        """Paths or URLs, in input order."""
        return [path for part in self.parts for path in part.files]

    @functools.cached_property
    def listing(self) -> Listing:
        """Files of all sources, in order."""
        listings: list[Listing] = [part.listing for part in self.parts]  # type: ignore[attr-defined] # of all that users read
        return Listing(
            packed_paths=zlib.compress("\0".join(self.files).encode("utf-8", "surrogatepass"), 1),
            sizes=np.concatenate([one.sizes for one in listings]),
            stamps=np.concatenate([one.stamps for one in listings]),
            storage_options={name: value for one in listings for name, value in one.storage_options.items()},
            entries=tuple(dict.fromkeys(entry for one in listings for entry in one.entries)),
            suffixes=tuple(dict.fromkeys(suffix for one in listings for suffix in one.suffixes)),
        )

    @property
    def compiled(self) -> tuple[str, ...]:
        """Names of the compiled functions that read the rows."""
        return tuple(dict.fromkeys(name for part in self.parts for name in getattr(part, "compiled", ())))

    @property
    def meta(self) -> pd.DataFrame:
        """Empty block with the columns of all sources; each block has those of its own source."""
        first: pd.DataFrame
        first, *others = (part.meta for part in self.parts)
        for meta in others:
            first = first.assign(**{name: meta[name] for name in meta.columns if name not in first.columns})
        return first

    @property
    def asked(self) -> Mapping[str, Any]:
        """Parameters of the readers, shown in an error if they differ from those of the run to resume."""
        return {
            f"{name} of table {number}": Digested(*value)
            for number, part in enumerate(self.parts, start=1)
            for name, value in printed_source(part).items()
        }

    @property
    def fingerprint(self) -> str:
        """Digest of the sources."""
        return fingerprint("concat", [part.fingerprint for part in self.parts])

    @property
    def input_bytes(self) -> int:
        """Size of all files on disk."""
        return sum(part.input_bytes for part in self.parts)

    @property
    def text_bytes(self) -> int:
        """Approximate decompressed size of all files, without reading them."""
        return sum(part.text_bytes for part in self.parts)

    def about_rows(self) -> int | None:
        """Return the approximate number of rows, if every source knows its own."""
        rows = [part.about_rows() for part in self.parts]
        return None if None in rows else sum(each for each in rows if each is not None)

    @property
    def reader_factor(self) -> float:
        """Memory multiplier of the reader that needs most."""
        return max(part.reader_factor for part in self.parts)

    @property
    def reader_fixed_bytes(self) -> int:
        """Bytes held in addition to blocks by the reader that needs most."""
        return max(part.reader_fixed_bytes for part in self.parts)

    @property
    def quarantines(self) -> bool:
        """Whether any of the sources quarantines bad rows; those of the others raise."""
        return any(part.quarantines for part in self.parts)

    def is_whole_file(self, file: int) -> bool:
        """Return whether a plain file can only be read from its beginning."""
        number = int(np.searchsorted(self.bases, file, side="right")) - 1
        is_whole: Callable[[int], bool] | None = getattr(self.parts[number], "is_whole_file", None)
        return is_whole is not None and is_whole(file - int(self.bases[number]))

    def cut(self, piece_bytes: int) -> Ranges:
        """Cut the input into input splits of about ``piece_bytes`` decompressed bytes, each of one source."""
        return self.joined([part.cut(piece_bytes) for part in self.parts])

    def joined(self, ranges: Sequence[Ranges]) -> Ranges:
        """Return the input splits of the sources as those of this one."""
        shifts = [np.array([base, 0, base, 0]) for base in self.bases[:-1]]
        tables = [one.table + shift for one, shift in zip(ranges, shifts, strict=True)]
        return Ranges(np.concatenate(tables).astype(np.int64))

    def select(self, columns: Sequence[str]) -> ConcatSource:
        """Return this source with only these columns of each source."""
        chosen = (part.select([name for name in columns if name in part.meta.columns]) for part in self.parts)
        return replace(self, parts=tuple(chosen))

    def blocks(
        self,
        piece: Range,
        *,
        block_bytes: int,
        largest_row_bytes: int | None = None,
        on_bad_row: Callable[[BadRow], None] | None = None,
        on_long_row: Callable[[OversizeRowError], None] | None = None,
        wanted: RowChoice | None = None,
    ) -> Iterator[pd.DataFrame]:
        """Stream an input split as blocks of about ``block_bytes``; see `Source.blocks`."""
        number = int(np.searchsorted(self.bases, piece.first_file, side="right")) - 1
        part, base = self.parts[number], int(self.bases[number])
        shift = base << OFFSET_BITS
        own = replace(piece, first_file=piece.first_file - base, last_file=piece.last_file - base)
        blocks = part.blocks(
            own,
            block_bytes=block_bytes,
            largest_row_bytes=largest_row_bytes,
            on_bad_row=on_bad_row if part.quarantines else None,
            on_long_row=on_long_row,
            wanted=None if wanted is None else lambda addresses: wanted(addresses + shift),
        )
        for block in blocks:
            block.index = pd.Index(block.index.to_numpy() + shift, name=ADDRESS)
            yield block
            del block

    def __dask_tokenize__(self) -> Any:
        """Identify the value for Dask without walking it."""
        return ("curator_df.ConcatSource", self.fingerprint, [list(part.meta.columns) for part in self.parts])


@dataclass(frozen=True)
class PartStep:
    """Step of one of the tables."""

    action: Action = field(metadata={"identity": False})
    """Operation on its blocks."""
    identity: str
    """Digest of the operation."""
    first: int
    """First row ID of the table."""
    stop: int
    """Row ID after the last one of the table."""

    def takes(self, block: Any) -> bool:
        """Return whether a block has rows of the table; a block never has rows of two."""
        return len(block) > 0 and self.first <= int(block.index[0]) < self.stop

    def require_own(self, name: str, block: Any) -> None:
        """Raise `OperatorError` if rows have other row IDs than those of the table."""
        index = block.index
        if len(block) and (index.dtype != np.int64 or index.min() < self.first or index.max() >= self.stop):
            raise OperatorError(
                f"{OPERATOR}: {name} changed the index, by which curator_df identifies rows. Let the function keep the index of "
                "its block"
            )


def part_block(block: Any, *, part: PartStep, name: str) -> Any:
    """Kernel of a step of one table: the blocks of other tables pass unchanged."""
    if not part.takes(block):
        return block
    outcome: Outcome = part.action.run(block)  # type: ignore[attr-defined]
    if part.action.may_change_index:
        part.require_own(name, outcome.block)
    return outcome


def align_block(block: Any, *, schema: pa.Schema) -> Any:
    """Kernel that brings a block to the columns of the result; a missing column is null."""
    meta = empty_block(schema)
    if not len(block):
        return meta
    columns = {}
    for name, dtype in meta.dtypes.items():
        if name not in block.columns:
            columns[name] = _nulls(dtype, block.index)
        else:
            columns[name] = block[name] if block.dtypes[name] == dtype else _converted(block[name], dtype)
    return pd.DataFrame(columns, index=block.index, copy=False)


def _nulls(dtype: Any, index: pd.Index) -> pd.Series:
    return pd.Series(pd.array([None], dtype=dtype).take(np.zeros(len(index), np.int64)), index=index)


def _converted(values: pd.Series, dtype: Any) -> pd.Series:
    """Return a column in another type; the values of a categorical one exactly."""
    if has_no_type(values.dtype):
        return _nulls(dtype, values.index)
    if not isinstance(values.dtype, pd.CategoricalDtype):
        return values.astype(dtype)
    if is_text(dtype) and not is_text(values.dtype):
        raise SchemaError(
            f"{OPERATOR}: the categories of {values.name!r} were not known before the run, so they were taken for text, but they "
            f"are {values.cat.categories.dtype}. Leave out astype('category'), or pass it a pandas.CategoricalDtype"
        )
    categories = pd.Series(values.cat.categories).astype(dtype)
    taken = categories.array.take(values.cat.codes.to_numpy(), allow_fill=True)  # the code of null is -1
    return pd.Series(taken, index=values.index, name=values.name)


def concat(tables: Sequence[dd.DataFrame], *, how: Alignment = "same") -> dd.DataFrame:
    r"""Put the rows of several tables one after another, in one run and without temporary files.

    Parameters
    ----------
    tables : list of dask.dataframe.DataFrame
        Tables that each begin with a reader of curator_df, such as one of `read_jsonl` and one of `read_csv`. Each may
        have block-by-block steps of its own.
    how : {"same", "union"}, default "same"
        ``"same"``: all tables must have the same columns, in any order. ``"union"``: the result has the columns of all
        tables, and a column is null in the rows of tables that lack it.

    Returns
    -------
    dask.dataframe.DataFrame
        The rows of the first table, then those of the second, and so on, each in its own order. The columns are in the
        order of the first table. The index has row IDs in which the files of the tables are numbered on. Columns have
        nullable types, so integers stay integers.

    Raises
    ------
    ColumnError
        If the tables do not have the same columns, with ``how="same"``.
    SchemaError
        If a column has different types.
    ExpressionError
        If a table has a deferred operation, such as a drop of duplicates, or does not begin with a reader of curator_df while
        no cluster with a folder for working files is open.
    ParameterError
        If there are no tables.
    UnsupportedBackendError
        If the blocks of a table are cuDF blocks.

    See Also
    --------
    join, blend

    Notes
    -----
    Rows: those of all tables, in order. Columns: those of the tables. Peak extra memory: 1.0 x block. Computes: no; tables of
    Dask and pandas are written to working files. See ``docs/joining.md``.

    Each table keeps the rules of its reader, such as ``on_bad_rows``. The receipt and ``explain`` list the steps of every
    table; rows of other tables pass them unchanged. Rejects and quarantined rows have the file and offset of the row. With
    ``dask.dataframe.concat``, Dask computes the rows into temporary files first. A table that does not begin with a reader of
    curator_df is written to working files of the cluster by this call; the result can be used until that cluster is closed.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import curator_df as cdf
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.jsonl").write_text('{"id": 1, "text": "one"}')
    >>> _ = (folder / "b.csv").write_text("text,id\ntwo,2")
    >>> both = concat([cdf.read_jsonl(folder / "a.jsonl"), cdf.read_csv(folder / "b.csv")])
    >>> both.compute().values.tolist()
    [[1, 'one'], [2, 'two']]
    """
    choose(OPERATOR, "how", how, Alignment)
    if isinstance(tables, (dd.DataFrame, pd.DataFrame, str)) or not isinstance(tables, Sequence) or not tables:
        got = "an empty list" if isinstance(tables, (list, tuple)) else type(tables).__name__
        raise ParameterError(
            f"{OPERATOR}: tables must be a list of at least one table, such as [docs, more]; got {got}"
        )
    for number, table in enumerate(tables, start=1):
        _require_part(table, number)
    if how == "same":
        _require_same_columns([stored_names(table) for table in tables])
    if any(map(is_spooled, tables)):  # not only after that was written
        _joined_schema([known_meta(table) for table in tables])
    programs = [_program(table, number, spools=True) for number, table in enumerate(tables, start=1)]
    source = ConcatSource(tuple(program.source for program in programs))
    if source.bases[-1] > MOST_FILES:
        raise ParameterError(
            f"{OPERATOR}: the tables have {source.bases[-1]:,} files, but a table can have {MOST_FILES:,}. Use fewer tables"
        )
    schema = _joined_schema([program.meta for program in programs])
    readers = [origin_of(spooled(table)) for table in tables]
    explicit = [reader.block_bytes for reader in readers if reader.explicit]
    result = from_source(
        source,
        source.joined([reader.ranges for reader in readers]),
        block_bytes=min(explicit, default=max(reader.block_bytes for reader in readers)),
        explicit=bool(explicit),
        in_parts=True,
    )
    meta = empty_block(schema)
    if all(not program.steps and _is_like(program.meta, meta) for program in programs):
        return result
    for program, first, stop in zip(programs, source.bases[:-1], source.bases[1:], strict=True):
        for step in program.steps:
            result = map_blocks(
                result, _kernel(step, int(first) << OFFSET_BITS, int(stop) << OFFSET_BITS), meta=source.meta
            )
    price = Price(ALIGN_FACTOR, is_measured=True)
    return map_blocks(result, BlockKernel(OPERATOR, align_block, {"schema": schema}, price=price), meta=meta)


def _require_part(table: Any, number: int) -> None:
    """Check what is known of a table before any of the tables is written to working files."""
    require_table(table, OPERATOR)
    require_backend(table._meta, OPERATOR, "pandas", because="columns are aligned in host memory")
    if is_spooled(table):
        _require_streamed(pending_steps(table), number)
    else:
        _program(table, number)


def _require_same_columns(tables: Sequence[Sequence[str]]) -> None:
    for number, names in enumerate(tables[1:], start=2):
        missing, extra = ([n for n in a if n not in b] for a, b in ((tables[0], names), (names, tables[0])))
        if missing or extra:
            said = [f"lacks {listed(missing)}"] * bool(missing) + [f"also has {listed(extra)}"] * bool(extra)
            raise ColumnError(
                f"{OPERATOR}: table {number} {' and '.join(said)}, compared with the first table. Use how='union' to fill "
                "missing columns with nulls, or choose the same columns in all tables"
            )


def _program(table: Any, number: int, *, spools: bool = False) -> Program:
    """Return the program of a table, after checks."""
    try:
        program = lower(table, spools=spools or current_spooler() is None)
    except ExpressionError as exc:
        raise ExpressionError(f"{OPERATOR}: table {number}: {exc}") from exc
    _require_streamed([step.name for step in program.steps if step.is_pending], number)
    if any(step.on_device for step in program.steps):
        raise ExpressionError(f"{OPERATOR}: table {number} has steps on a GPU. Read it with backend='pandas'")
    return program


def _require_streamed(pending: Sequence[str], number: int) -> None:
    """Raise `ExpressionError` if a table has deferred operations."""
    if pending:
        raise ExpressionError(
            f"{OPERATOR}: table {number} has the deferred operation {pending[0]}, which needs all of its rows first. Compute it "
            "with checkpoint(df, path) and pass the table that it returns, or apply the operation to the result of concat"
        )


def _kernel(step: Step, first: int, stop: int) -> BlockKernel:
    """Return a step of one table as a kernel that passes the blocks of others unchanged."""
    action = step.action
    return BlockKernel(
        step.name,
        part_block,
        {"part": PartStep(action, step.fingerprint, first, stop), "name": step.name},
        price=step.price,
        is_offloaded=action.is_offloaded,
        is_users=action.is_users,
        slow_path=getattr(action, "slow_path", ""),
        computes=getattr(action, "computes", ""),
        compiled=getattr(action, "compiled", ()),
        makes_rows=action.makes_rows,
        uses_addresses=True,
    )


def _is_like(meta: Any, wanted: Any) -> bool:
    return list(meta.columns) == list(wanted.columns) and bool((meta.dtypes == wanted.dtypes).all())


def _joined_schema(metas: Sequence[Any]) -> pa.Schema:
    """Return the columns of the result, from those of the tables."""
    schemas = [stored_schema(meta, Taken(0)) for meta in metas]
    untyped = [{name for name, dtype in meta.dtypes.items() if has_no_type(dtype)} for meta in metas]
    fields = {field.name: field for field in schemas[0]}
    unknown = set(untyped[0])
    for number, schema in enumerate(schemas[1:], start=2):
        for one in schema:
            has_type = one.name not in untyped[number - 1]
            if one.name not in fields and not has_type:
                unknown.add(one.name)
            known = fields.setdefault(one.name, one)
            if has_type and one.name in unknown:
                fields[one.name] = one
                unknown.discard(one.name)
            elif has_type and known.type != one.type:
                raise SchemaError(
                    f"{OPERATOR}: the column {one.name!r} is {one.type} in table {number}, but {known.type} in an "
                    f"earlier table. Convert it with astype(), or read it with dtype={{{one.name!r}: ...}}"
                )
    return pa.schema(list(fields.values()))
