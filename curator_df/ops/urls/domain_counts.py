# SPDX-License-Identifier: Apache-2.0
"""Count rows, characters and tokens by registered domain: `describe_domains`.

A run writes the counts of each block to Parquet files. This process then sorts them by the hash of the domain (in files if they
do not fit into 64 MB), adds up those of a domain, and keeps the largest. So no process holds the domains of the whole table.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from curator_df.arguments import require_integer, require_string
from curator_df.core.columns import require_table, require_text
from curator_df.core.ranges.blocks import BlockKernel, Outcome
from curator_df.errors import ParameterError
from curator_df.extras import require_package
from curator_df.files.row_order import Rows
from curator_df.files.row_sort import RowSorter, merge_slices
from curator_df.files.scratch import scratch_directory
from curator_df.files.slice_file import open_slices
from curator_df.files.storage import Folder
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.rows.content_hash import span_hashes
from curator_df.kernels.text.buffers import array_spans, text_chunks
from curator_df.kernels.urls.parts import registered_domain, spans_of, split_urls
from curator_df.ops.block_counts import Batches, count_blocks, require_token_column
from curator_df.ops.host_only import require_host
from curator_df.ops.urls.url_parts import TEXT, suffix_list_price

OPERATOR = "describe_domains"
PEAK_FACTOR = 4.0
SORT_BYTES = 64_000_000
"""Memory for sorting counts, in bytes."""
WORDS = 5
"""Numbers of a sorted row: the two halves of the hash of a domain, rows, characters and tokens."""
COUNTS = ("rows", "characters", "tokens")


def describe_domains(
    df: dd.DataFrame | pd.DataFrame | Mapping[str, dd.DataFrame | pd.DataFrame],
    *,
    url: str = "url",
    top: int = 100,
    token_column: str | None = None,
    text: str = "text",
    private_suffixes: bool = False,
    workdir: str | os.PathLike[str] | None = None,
    storage_options: dict[str, Any] | None = None,
) -> pd.DataFrame:
    """Count rows, characters and tokens by registered domain, for the domains with the most rows.

    Parameters
    ----------
    df : dask.dataframe.DataFrame, pandas.DataFrame, or mapping of names to them
        The table; or several to compare, such as ``{"before": docs, "after": kept}``.
    url : str, default "url"
        Column of URLs.
    top : int, default 100
        Number of domains to return, at least 1: those with the most rows; among equal ones, those with the most
        characters. Of several tables, those that are among the ``top`` of any.
    token_column : str, optional
        Column of integers with the number of tokens of each row, as `add_token_count` adds it. Null counts as 0.
    text : str, default "text"
        The text column, whose characters are counted if the table has it.
    private_suffixes : bool, default False
        Whether suffixes such as ``github.io`` count as public suffixes; see `add_url_parts`.
    workdir : str or path, optional
        Folder (or URL) visible to all workers, where the counts of blocks are stored in a subfolder: the same call finds
        them again, complete or interrupted. Defaults to the cluster's ``workdir``.
    storage_options : dict, optional
        fsspec options for ``workdir``.

    Returns
    -------
    pandas.DataFrame
        A pandas table with a row for each domain, those with the most rows first: ``domain``, ``rows``,
        ``share_of_rows`` (of all rows, from 0 to 1), ``characters`` (code points, if there is a text column) and
        ``tokens`` (if asked for). Of several tables, each of these columns has the name of its table at the end, as
        ``rows_before``; the order is that of the first table. A host without a registered domain, such as an
        address, stands for itself; rows without a host are counted where ``domain`` is null. ``attrs["totals"]`` has the
        sums over all domains, and ``domains``, the number of domains.

    Raises
    ------
    ColumnError
        If a column is missing.
    SchemaError
        If ``token_column`` is not a column of integers.
    ParameterError
        If ``top`` is less than 1, or no table is given.
    BudgetError
        If the plan does not fit the budget; nothing has been started.
    NoClusterError
        If a table is a Dask table and no cluster is running.
    MissingExtraError
        If tldextract is not installed (the extra ``urls``).
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    add_url_parts, keep_urls

    Notes
    -----
    Rows: one for each of the ``top`` domains. Columns: ``domain``, ``rows``, ``share_of_rows``, ``characters``, ``tokens``.
    Peak extra memory: 4.0 x block (assumed), and 100 MB in this process. Computes: yes, one pass over each table.

    Counts are exact, for any number of domains. Domains are identified by 128-bit hashes until the names of the
    ``top`` are looked up.

    Examples
    --------
    >>> import pandas as pd
    >>> pages = pd.DataFrame({"url": ["http://a.b.org/1", "https://b.org/2", "http://c.net"], "text": ["ab", "c", "def"]})
    >>> describe_domains({"before": pages, "after": pages[:1]})[["domain", "rows_before", "rows_after", "characters_before"]]
      domain  rows_before  rows_after  characters_before
    0  b.org            2           1                  3
    1  c.net            1           0                  3
    """
    require_integer(OPERATOR, "top", top)
    if top < 1:
        raise ParameterError(f"{OPERATOR}: top={top} must be at least 1")
    if not isinstance(private_suffixes, bool):
        raise ParameterError(f"{OPERATOR}: private_suffixes={private_suffixes!r} must be True or False")
    require_string(OPERATOR, "text", text)
    require_package(OPERATOR, "tldextract", "urls")
    tables = dict(df) if isinstance(df, Mapping) else {"": df}
    if not tables:
        raise ParameterError(f"{OPERATOR} was called without a table. Pass at least one, such as {{'before': docs}}")
    kernels = {
        name: _kernel(table, url, text, token_column, private=private_suffixes) for name, table in tables.items()
    }
    batches = {name: _counted(table, kernels[name], workdir, storage_options) for name, table in tables.items()}
    with tempfile.TemporaryDirectory(prefix="curator-df-", dir=scratch_directory()) as scratch:
        counts = {name: _SortedCounts.of(Folder(scratch), str(n), own) for n, (name, own) in enumerate(batches.items())}
        return _table(counts, batches, int(top), {name: _columns(kernel) for name, kernel in kernels.items()})


def _kernel(table: Any, url: str, text: str, tokens: str | None, *, private: bool) -> BlockKernel:
    """Check a table, and return the kernel that counts it."""
    if isinstance(table, pd.DataFrame):
        table = dd.from_pandas(table.iloc[:0], npartitions=1)
    require_table(table, OPERATOR)
    require_text(table, OPERATOR, url, parameter="url")
    require_host(table._meta, OPERATOR)
    if tokens is not None:
        require_token_column(table, OPERATOR, tokens)
    has_text = text in table.columns
    if has_text:
        require_text(table, OPERATOR, text)
    return BlockKernel(
        OPERATOR,
        count_domains_block,
        {"url": url, "text": text if has_text else None, "tokens": tokens, "private_suffixes": private},
        price=suffix_list_price(PEAK_FACTOR, is_measured=False),
        compiled=kernel_sets.CONTENT,
    )


def _columns(kernel: BlockKernel) -> tuple[str, ...]:
    """Return the names of the counts that a kernel makes."""
    return (
        "rows",
        *(name for name, of in (("characters", "text"), ("tokens", "tokens")) if kernel.parameters[of] is not None),
    )


def _counted(table: Any, kernel: BlockKernel, workdir: Any, options: dict[str, Any] | None) -> Batches:
    """Count the blocks of a table; return a function that reads the counts."""
    meta = pd.DataFrame({"domain": pd.Series(dtype=TEXT), **{name: pd.Series(dtype=np.int64) for name in COUNTS}})
    used = (kernel.parameters[name] for name in ("url", "text", "tokens"))
    return count_blocks(table, kernel, used, meta, workdir, options)


def count_domains_block(
    block: Any, *, url: str, text: str | None, tokens: str | None, private_suffixes: bool
) -> Outcome:
    """Kernel of `describe_domains`: a row for each domain of the block, with the index of the first of its rows."""
    require_host(block, OPERATOR)
    numbers: dict[str | None, int] = {}
    codes = [np.empty(0, dtype=np.int64)]
    for urls in spans_of(text_chunks(block[url])):
        split = split_urls(urls)
        names = (registered_domain(host, private=private_suffixes) or host for host in split.hosts)
        own = np.array([numbers.setdefault(name, len(numbers)) for name in names] + [-1], dtype=np.int64)
        if (split.codes < 0).any():
            own[-1] = numbers.setdefault(None, len(numbers))
        codes.append(own[split.codes])
    code, count = np.concatenate(codes), len(numbers)
    counts = {"rows": np.bincount(code, minlength=count)}
    lengths = np.zeros(len(block)) if text is None else _numbers(pc.utf8_length(text_chunks(block[text])))
    counts["characters"] = np.bincount(code, weights=lengths, minlength=count)
    given = np.zeros(len(block)) if tokens is None else block[tokens].to_numpy(dtype=np.float64, na_value=0)
    counts["tokens"] = np.bincount(code, weights=given, minlength=count)
    firsts = np.unique(code, return_index=True)[1]
    columns = {name: values.astype(np.int64) for name, values in counts.items()}
    domains = TEXT.__from_arrow__(pa.chunked_array([pa.array(list(numbers), pa.large_string())]))
    found = pd.DataFrame({"domain": domains, **columns}, index=block.index[firsts])
    return Outcome(found, {"counted with another row": len(block) - count} if len(block) > count else {})


def _numbers(values: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    return np.asarray(pc.fill_null(values, 0), dtype=np.float64)


def _rows_of(counted: pa.Table) -> Rows:
    """Return counts as rows of 64-bit words that begin with the hash of the domain."""
    rows = np.empty((counted.num_rows, WORDS), dtype=np.uint64)
    domains = pc.fill_null(counted["domain"].cast(pa.large_string()), "")
    for first, chunk in zip(np.cumsum([0, *map(len, domains.chunks)]).tolist(), domains.chunks, strict=False):
        for span in array_spans(chunk, first):
            rows[span.first_row : span.first_row + len(span), :2] = span_hashes(span.data, span.offsets)
    for place, name in enumerate(COUNTS, 2):
        rows[:, place] = counted[name].to_numpy().astype(np.int64).view(np.uint64)
    return rows


@dataclass(frozen=True)
class _SortedCounts:
    """Counts of all blocks of one table, sorted by the hash of the domain."""

    folder: Folder
    record: Any

    @classmethod
    def of(cls, folder: Folder, name: str, batches: Batches) -> _SortedCounts:
        sorter = RowSorter(
            folder,
            name,
            words=WORDS,
            bounds=np.zeros(1, dtype=np.uint64),
            memory_bytes=SORT_BYTES,
            scratch=folder.root,
        )
        try:
            for counted in batches():
                sorter.append(_rows_of(counted))
            return cls(folder, sorter.commit())
        finally:
            sorter.discard()

    def sums(self) -> Iterator[Rows]:
        """Yield the counts of each domain, those of a domain added up."""
        left = np.empty((0, WORDS), dtype=np.uint64)
        slices = open_slices(self.folder, [self.record], 0)
        for piece in merge_slices(slices, memory_bytes=SORT_BYTES, scratch=self.folder.root):
            added = added_up(np.concatenate([left, piece]))
            left = added[-1:].copy()  # the next piece may continue it
            yield added[:-1]
        yield left


def added_up(rows: Rows) -> Rows:
    """Return sorted rows with those of one hash added up.

    Examples
    --------
    >>> added_up(np.array([[1, 1, 2, 0, 0], [1, 1, 3, 0, 1], [1, 2, 4, 0, 0]], dtype=np.uint64)).tolist()
    [[1, 1, 5, 0, 1], [1, 2, 4, 0, 0]]
    """
    if not len(rows):
        return rows
    begins = np.ones(len(rows), dtype=np.bool_)
    begins[1:] = (rows[1:, :2] != rows[:-1, :2]).any(axis=1)
    firsts = np.flatnonzero(begins)
    sums = rows[firsts]
    sums[:, 2:] = np.add.reduceat(rows[:, 2:], firsts, axis=0)
    return sums


def _largest(rows: Rows, top: int) -> Rows:
    """Return the rows with the most rows, then characters; among equal ones, the order is that of the hashes."""
    order = np.lexsort((rows[:, 1], rows[:, 0], ~rows[:, 3], ~rows[:, 2]))
    return rows[order[:top]]


def _top_and_totals(counts: _SortedCounts, top: int) -> tuple[Rows, dict[str, int]]:
    best, totals = np.empty((0, WORDS), dtype=np.uint64), dict.fromkeys(("domains", *COUNTS), 0)
    for sums in counts.sums():
        best = _largest(np.concatenate([best, sums]), top)
        totals["domains"] += len(sums)
        for place, name in enumerate(COUNTS, 2):
            totals[name] += int(sums[:, place].sum())
    return best, totals


def _table(
    counts: Mapping[str, _SortedCounts],
    batches: Mapping[str, Batches],
    top: int,
    columns: Mapping[str, tuple[str, ...]],
) -> pd.DataFrame:
    found = {name: _top_and_totals(own, top) for name, own in counts.items()}
    keys = list(dict.fromkeys(tuple(key) for best, _ in found.values() for key in best[:, :2].tolist()))
    values = {name: _looked_up(own, keys) for name, own in counts.items()}
    table = {"domain": pd.array(_names(batches, keys), dtype=TEXT)}
    for name, own in values.items():
        end, totals = f"_{name}" if name else "", found[name][1]
        for column in columns[name]:
            table[f"{column}{end}"] = own[:, COUNTS.index(column)]
            if column == "rows":
                table[f"share_of_rows{end}"] = own[:, 0] / max(totals["rows"], 1)
    order = [(~own[:, place]) for own in reversed(list(values.values())) for place in (1, 0)]
    made = pd.DataFrame(table).iloc[np.lexsort(order)].reset_index(drop=True)
    kept = {name: {key: totals[key] for key in ("domains", *columns[name])} for name, (_, totals) in found.items()}
    made.attrs["totals"] = kept.get("", kept)
    return made


def _looked_up(counts: _SortedCounts, keys: list[tuple[int, ...]]) -> npt.NDArray[np.int64]:
    """Return the counts of some domains, 0 for one that a table does not have."""
    places = {key: place for place, key in enumerate(keys)}
    wanted = np.array([key[0] for key in keys], dtype=np.uint64)
    values = np.zeros((len(keys), len(COUNTS)), dtype=np.int64)
    for sums in counts.sums():
        for row in sums[np.isin(sums[:, 0], wanted)].tolist():
            if (place := places.get(tuple(row[:2]))) is not None:
                values[place] = row[2:]
    return values


def _names(batches: Mapping[str, Batches], keys: list[tuple[int, ...]]) -> list[str | None]:
    """Return the domains with these hashes."""
    missing, names = set(keys), dict[tuple[int, ...], str | None]()
    wanted = np.array([key[0] for key in keys], dtype=np.uint64)
    for own in batches.values():
        for counted in own():
            if not missing:
                break
            hashes = _rows_of(counted)[:, :2]
            for place in np.flatnonzero(np.isin(hashes[:, 0], wanted)).tolist():
                key = tuple(hashes[place].tolist())
                if key in missing:
                    missing.remove(key)
                    names[key] = counted["domain"][place].as_py()
    return [names[key] for key in keys]
