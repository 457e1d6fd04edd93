# SPDX-License-Identifier: Apache-2.0
"""Several outputs from one pass over the input: `write_many`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal, get_args

import dask.dataframe as dd
from dask.dataframe.dask_expr import FrameBase

from curator_df.arguments import choose
from curator_df.core.planning.first_steps import Reuse
from curator_df.core.ranges.journal import OnExisting
from curator_df.core.ranges.sink import Sink
from curator_df.core.runner.run import run_branches
from curator_df.core.tasks.task import OnError, OnOom
from curator_df.errors import ExpressionError, ParameterError
from curator_df.io.output.formats import (
    TARGET_FILE_BYTES,
    JsonlCompression,
    JsonlFormat,
    ParquetCompression,
    ParquetFormat,
    file_sink,
    folder_at,
    parquet_format,
    rejects_sink,
)
from curator_df.models.tokens.sink import TokenSink
from curator_df.models.tokens.write import TokenFormat, TokenOptions, finish_tokens, token_output
from curator_df.receipts.receipt import Receipt

Path = str | os.PathLike[str]
Format = Literal["parquet", "jsonl", "megatron", "numpy", "arrow", "mds"]
OPERATOR = "write_many"
Compression = ParquetCompression | JsonlCompression


def write_many(
    tables: Mapping[Path, dd.DataFrame],
    *,
    format: Format | Mapping[Path, Format] = "parquet",  # noqa: A002 - the usual name
    compression: Compression | Mapping[Path, Compression] | None = None,
    cdc: bool = False,
    tokenizer: str | os.PathLike[str] | None = None,
    text: str = "text",
    add_eos: bool = True,
    eos_token: str | int | None = None,
    special_tokens: bool = False,
    pack: int | None = None,
    split_documents: bool = True,
    pad_id: int | None = None,
    merge: bool = False,
    provenance: bool = True,
    revision: str | None = None,
    target_file_size: str | int = TARGET_FILE_BYTES,
    partition_on: str | list[str] | Mapping[Path, str | list[str]] | None = None,
    rejects: Mapping[Path, Path] | None = None,
    workdir: Path | None = None,
    on_existing: OnExisting = "raise",
    on_error: OnError = "raise",
    on_oom: OnOom = "retry",
    reuse: Reuse = "auto",
    storage_options: dict[str, Any] | None = None,
) -> dict[Path, Receipt]:
    """Run several chains over one input in one pass, each into its own folder.

    The input is read once. The steps that all chains have in common at their start run once for each block, and a
    ``drop_`` among them compares its rows once. Then each block goes through the remaining steps of every chain into
    that chain's files. Each folder ends up with the files, quarantined rows and receipt that `write_parquet`,
    `write_jsonl` or `write_tokens` would have left there.

    Parameters
    ----------
    tables : mapping of str or path to dask.dataframe.DataFrame
        Folders (or fsspec URLs), and the chain whose rows go there, such as ``{"train/": train, "test/": test}``. All chains
        must begin with the same table: that of one reader, `concat` or `blend`. The parts that `split_rows` returns do.
        Their columns and types may differ. Tables of different inputs are written by `write_parquet` one after the other,
        or put together first, by `concat` or `blend`.
    format : {"parquet", "jsonl", "megatron", "numpy", "arrow", "mds"} or mapping of str or path to one of these
        Format of the files; with a mapping, the format of each folder, Parquet for others. The last four are formats of
        tokens; see `write_tokens`.
    compression : str or mapping of str or path to str, optional
        As in `write_parquet` (zstd by default) or `write_jsonl` (none by default).
    cdc : bool, default False
        Let pages of Parquet files end where the content says so; see `write_parquet`.
    tokenizer : str or path, optional
        For formats of tokens, which need one: a tokenizer; see `write_tokens`.
    text, add_eos, eos_token, special_tokens, pack, split_documents, pad_id, merge, provenance, revision
        For formats of tokens: as in `write_tokens`.
    target_file_size : str or int
        A file is closed once it reaches this size on disk.
    partition_on : str, list of str, or mapping of str or path to one of these, optional
        Columns of every table (with a mapping: of the tables that it names) whose values become folders (``lang=en/``);
        they are not in the files.
    rejects : mapping of str or path to str or path, optional
        For outputs whose dropped rows are to be written: the output's folder as in ``tables``, and the folder for these
        rows. A row that a shared step drops is written for each of them. See `write_parquet`.
    workdir : str or path, optional
        Folder for the temporary files of drops; by default below the first output. See `write_parquet`.
    on_existing : {"raise", "resume", "overwrite"}
        What to do if any of the folders is not empty; see `write_parquet`. "resume" leaves a complete output unchanged.
    on_error : {"raise", "quarantine"}
        What to do when a step fails on a row: stop, or quarantine the row for every output that it was on its
        way to.
    on_oom : {"retry", "raise"}
        What to do when memory runs out; see `write_parquet`.
    reuse : {"auto", "always", "never"}
        Whether the first steps run once for all passes of a later drop; see `write_parquet`.
    storage_options : dict, optional
        fsspec options.

    Returns
    -------
    dict of str or path to Receipt
        A receipt for each folder, under its name as in ``tables``. Memory and wall time are those of the whole run;
        seconds of shared steps are in every receipt.

    Raises
    ------
    BudgetError
        If the plan does not fit the budget: all outputs are written at once. Nothing has been started.
    ExpressionError
        If the tables do not begin with the same read.
    ParameterError
        If there is no table; if a folder is named twice, lies inside another, or holds what is read; if a format of
        tokens lacks ``tokenizer``, or no folder has such a format and ``tokenizer`` or ``pack`` is given.
    InputError
        If the tokenizer does not exist.
    MissingExtraError
        If a format of tokens is used and the package tokenizers is not installed.
    OutputExistsError
        If a folder is not empty and ``on_existing="raise"``; none of them has been changed.
    NoClusterError
        If no cluster is running.

    See Also
    --------
    write_parquet, write_tokens, split_rows, write_by

    Notes
    -----
    Rows: all of each table, in input order over the files' names. Columns: all. Peak extra memory: as of the writers,
    1.5 x block (1.0 x for JSON Lines; for tokens as of `write_tokens`), and one more block for each further output, for
    each of the ``rejects``, and for what the chains share. Computes: yes, one pass over the input that the tables share.

    Examples
    --------
    >>> docs = cdf.read_jsonl("corpus/").pipe(cdf.normalize_unicode)  # doctest: +SKIP
    >>> tables = {"en/": docs[docs.lang == "en"], "de/": docs[docs.lang == "de"]}  # doctest: +SKIP
    >>> receipts = cdf.write_many(tables, rejects={"en/": "not-en/"})  # doctest: +SKIP
    >>> receipts["en/"].rows_written  # doctest: +SKIP
    812
    >>> parts = docs.pipe(cdf.split_rows, {"train": 0.99, "validation": 0.01})  # doctest: +SKIP
    >>> receipts = cdf.write_many(parts, format="megatron", tokenizer="tokenizer/", pack=4096)  # doctest: +SKIP
    """
    _require_tables(tables)
    formats, compressions, columns, kept = (
        _by_folder(tables, name, given)
        for name, given in (
            ("format", format),
            ("compression", compression),
            ("partition_on", partition_on),
            ("rejects", {} if rejects is None else rejects),
        )
    )
    named = {path: formats.get(path, "parquet") for path in tables}
    for name in named.values():
        choose(OPERATOR, "format", name, Format)
    of_tokens = _token_paths(named, tokenizer, pack)
    outputs: list[tuple[Any, Sink, Sink | None]] = []
    for path, df in tables.items():
        removed = rejects_sink(df, OPERATOR, kept.get(path), storage_options)
        if path not in of_tokens or tokenizer is None:
            form = _file_format(named[path], compressions.get(path), cdc=cdc)
            sink = file_sink(df, OPERATOR, path, form, target_file_size, columns.get(path), storage_options)
            outputs.append((df, sink, removed))
            continue
        _refuse_file_options(path, named[path], compressions.get(path), columns.get(path))
        options = TokenOptions(
            tokenizer,
            text,
            add_eos,
            eos_token,
            special_tokens,
            pack,
            split_documents,
            pad_id,
            merge,
            provenance,
            revision,
        )
        outputs.append((*token_output(OPERATOR, df, path, of_tokens[path], options, storage_options), removed))
    temporary = None if workdir is None else folder_at(workdir, storage_options)
    receipts = run_branches(
        outputs, workdir=temporary, on_existing=on_existing, on_error=on_error, on_oom=on_oom, reuse=reuse
    )
    for _, written, _ in outputs:
        if isinstance(written, TokenSink):
            finish_tokens(written, merge=merge)
    return dict(zip(tables, receipts, strict=True))


def _token_paths(formats: Mapping[Path, Any], tokenizer: Any, pack: Any) -> dict[Path, TokenFormat]:
    """Return the folders with a format of tokens; raise an error unless the tokenizer fits them."""
    found = {path: name for path, name in formats.items() if name in get_args(TokenFormat)}
    if found and tokenizer is None:
        path, name = next(iter(found.items()))
        raise ParameterError(
            f"write_many: format={name!r} of {path!r} needs a tokenizer. Set tokenizer=, such as tokenizer='tokenizer.json'"
        )
    for given, value in (("tokenizer", tokenizer), ("pack", pack)):
        if value is not None and not found:
            raise ParameterError(
                f"write_many: {given}={value!r} applies only to formats of tokens ({', '.join(get_args(TokenFormat))}), but "
                f"format= is {', '.join(map(repr, dict.fromkeys(formats.values())))}. Leave it out, or set such a format="
            )
    return found


def _refuse_file_options(path: Path, name: str, compression: Any, partition_on: Any) -> None:
    for given, value in (("compression", compression), ("partition_on", partition_on)):
        if value is not None:
            raise ParameterError(
                f"write_many: {given}={value!r} is for Parquet and JSON Lines, but {path!r} has format={name!r}. Leave it "
                "out, or pass a mapping that names only the folders of Parquet and JSON Lines"
            )


def _by_folder(tables: Mapping[Path, Any], name: str, given: Any) -> dict[Path, Any]:
    """Return the value for each folder: the same for all, or the entries of a mapping."""
    if not isinstance(given, Mapping):
        return dict.fromkeys(tables, given)
    for path in given:
        if path not in tables:
            raise ParameterError(
                f"write_many: {name}= has the key {path!r}, which is not a key of tables=. Use one of: "
                f"{', '.join(repr(os.fspath(one)) for one in tables)}"
            )
    return dict(given)


def _file_format(name: str, compression: str | None, *, cdc: bool) -> ParquetFormat | JsonlFormat:
    if name == "jsonl":
        chosen = compression or "none"
        choose("write_many", "compression", chosen, JsonlCompression)
        return JsonlFormat(chosen)
    return parquet_format("write_many", compression or "zstd", cdc)


def _require_tables(tables: Any) -> None:
    if not isinstance(tables, Mapping) or not tables:
        raise ParameterError(
            f"write_many: tables must be a mapping of folders to tables, such as {{'en/': english, 'de/': german}}; got "
            f"{'an empty one' if isinstance(tables, Mapping) else type(tables).__name__}"
        )
    for path, df in tables.items():
        if not isinstance(df, FrameBase) or df.ndim != 2:
            raise ExpressionError(
                f"write_many: the table for {path!r} must be a Dask DataFrame, not {type(df).__name__}"
            )
