# SPDX-License-Identifier: Apache-2.0
"""Compute a table once and continue from its files: `checkpoint`, and `read_receipt` for the receipt of a finished run."""

from __future__ import annotations

import json
import os
import posixpath
from typing import Any

import dask.dataframe as dd
from dask.dataframe.dask_expr import FrameBase

from curator_df.arguments import did_you_mean_path
from curator_df.core.planning.lowering import origin_of
from curator_df.core.ranges.journal import OnExisting
from curator_df.core.receipts.receipt import Receipt
from curator_df.core.tasks.task import OnError, OnOom
from curator_df.errors import CorruptFileError, InputError
from curator_df.files.storage import JOURNAL_FOLDER, Folder
from curator_df.io.output.write import write_parquet
from curator_df.io.parquet.reader import read_parquet


def checkpoint(
    df: dd.DataFrame,
    path: str | os.PathLike[str],
    *,
    rejects: str | os.PathLike[str] | None = None,
    workdir: str | os.PathLike[str] | None = None,
    on_existing: OnExisting = "resume",
    on_error: OnError = "raise",
    on_oom: OnOom = "retry",
    storage_options: dict[str, Any] | None = None,
) -> dd.DataFrame:
    """Run a chain, write it to Parquet files, and return the table read back from them.

    The steps before a ``drop_`` run twice, and those before two of them three times. After a checkpoint, its output is
    read instead. A second call with the same input and chain finds the files complete and computes nothing.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A chain that begins with `read_jsonl` or `read_parquet`.
    path : str or path
        Folder for the files, or an fsspec URL.
    rejects : str or path, optional
        Folder for the dropped rows; see `write_parquet`.
    workdir : str or path, optional
        Folder for the temporary files of drops; see `write_parquet`.
    on_existing : {"resume", "raise", "overwrite"}
        What to do if the folder is not empty: continue (or reuse) what the same input and chain left there; raise an
        error; or delete what a run wrote there and start again.
    on_error : {"raise", "quarantine"}
        What to do when a step fails on a row; see `write_parquet`.
    on_oom : {"retry", "raise"}
        What to do when memory runs out; see `write_parquet`.
    storage_options : dict, optional
        fsspec options.

    Returns
    -------
    dask.dataframe.DataFrame
        The table, read back from Parquet; a second call finds it. Lazy, with the rows in order and the columns and
        types of ``df``. `read_receipt` of it returns the receipt of the run.

    Raises
    ------
    BudgetError
        If the plan does not fit the budget; nothing has been started.
    ResumeError
        If the folder holds the run of another chain: pass ``on_existing="overwrite"``, or use another folder.
    NoClusterError
        If no cluster is running.

    See Also
    --------
    write_parquet, explain, forget

    Notes
    -----
    Rows: all, in input order. Columns: all. Peak extra memory: 1.5 x block. Computes: yes.

    Examples
    --------
    >>> docs = cdf.read_jsonl("corpus/").pipe(cdf.normalize_unicode)  # doctest: +SKIP
    >>> docs = cdf.checkpoint(docs, "normalized/")  # doctest: +SKIP
    >>> receipt = cdf.write_parquet(docs.pipe(cdf.drop_near_duplicates), "clean/")  # doctest: +SKIP
    """
    write_parquet(
        df,
        path,
        rejects=rejects,
        workdir=workdir,
        on_existing=on_existing,
        on_error=on_error,
        on_oom=on_oom,
        storage_options=storage_options,
    )
    return read_parquet(path, storage_options=storage_options)


def read_receipt(
    source: dd.DataFrame | str | os.PathLike[str], *, storage_options: dict[str, Any] | None = None
) -> Receipt:
    """Return the receipt of the run that wrote a folder.

    Parameters
    ----------
    source : str, path or dask.dataframe.DataFrame
        Folder (or URL) that `write_parquet`, `write_jsonl` or `checkpoint` wrote; or a table read from it.
    storage_options : dict, optional
        fsspec options, if ``source`` is a URL.

    Returns
    -------
    Receipt
        The receipt of the run that wrote the folder, as the run returned it.

    Raises
    ------
    InputError
        If no run was completed there.

    See Also
    --------
    write_parquet, compare_receipts

    Notes
    -----
    Rows: none. Peak extra memory: none. Computes: no.

    Examples
    --------
    >>> receipt = cdf.write_parquet(cdf.read_jsonl("corpus/"), "clean/")  # doctest: +SKIP
    >>> later = cdf.read_receipt("clean/")  # doctest: +SKIP
    """
    if isinstance(source, FrameBase):
        folder = folder_of(source)
    else:
        folder = Folder(os.fspath(source).rstrip("/") or "/", storage_options or {})
    name = f"{JOURNAL_FOLDER}/receipt.json"
    if not folder.exists(name):
        hint = did_you_mean_path(folder.url) if folder.is_local else ""
        raise InputError(f"{folder.url} has no receipt: no run of curator_df was completed there{hint}")
    try:
        return Receipt.from_json(json.loads(folder.read(name)))
    except (ValueError, TypeError, KeyError) as exc:
        raise CorruptFileError(f"{folder.url}/{name} is not a receipt of this version of curator_df: {exc}") from exc


def folder_of(df: Any) -> Folder:
    """Return the folder that a table was read from, above the folders of partitions.

    Raises
    ------
    InputError
        If its files are in several folders.
    """
    source: Any = origin_of(df).source
    listing = source.listing
    folders = {_above_partitions(posixpath.dirname(path)) for path in listing.paths}
    if len(folders) > 1:
        raise InputError(
            f"the table was read from {len(folders):,} folders, not from the output of a single run. Read one output folder"
        )
    return Folder(folders.pop(), listing.storage_options)


def _above_partitions(folder: str) -> str:
    while "=" in posixpath.basename(folder):
        folder = posixpath.dirname(folder)
    return folder
