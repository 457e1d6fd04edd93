# SPDX-License-Identifier: Apache-2.0
"""Receipts of finished runs, read from their output folders: `read_receipt`."""

from __future__ import annotations

import json
import os
import posixpath
from typing import Any

import dask.dataframe as dd
from dask.dataframe.dask_expr import FrameBase

from curator_df.arguments import did_you_mean_path, path_of
from curator_df.core.planning.lowering import origin_of
from curator_df.errors import CorruptFileError, ExpressionError, InputError
from curator_df.files.storage import JOURNAL_FOLDER, Folder, reading_errors
from curator_df.receipts.receipt import Receipt


def read_receipt(
    folder: dd.DataFrame | str | os.PathLike[str], *, storage_options: dict[str, Any] | None = None
) -> Receipt:
    """Return the receipt of the run that wrote a folder.

    Parameters
    ----------
    folder : str, path or dask.dataframe.DataFrame
        Folder (or URL) that `write_parquet`, `write_jsonl` or `checkpoint` wrote; or a table read from it.
    storage_options : dict, optional
        fsspec options, if ``folder`` is a URL.

    Returns
    -------
    Receipt
        The receipt of the run that wrote the folder, as the run returned it.

    Raises
    ------
    InputError
        If no run was completed there.
    ParameterError
        If ``folder`` is neither a table nor a path.

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
    if isinstance(folder, FrameBase):
        home = folder_of(folder)
    else:
        home = Folder(path_of("read_receipt", "folder", folder).rstrip("/") or "/", storage_options or {})
    name = f"{JOURNAL_FOLDER}/receipt.json"
    with reading_errors(home.url):
        content = home.read(name) if home.exists(name) else None
    if content is None:
        hint = did_you_mean_path(home.url) if home.is_local else ""
        raise InputError(
            f"{home.url} has no receipt, which curator_df writes when a run is complete. Pass the output folder of a "
            f"complete run{hint}"
        )
    try:
        return Receipt.from_json(json.loads(content))
    except (ValueError, TypeError, KeyError) as exc:
        raise CorruptFileError(
            f"{home.url}/{name}, the record of a run, cannot be read by this version of curator_df: {exc}. It is damaged, or "
            "another version wrote it. Read it with that version, or repeat the run into another folder"
        ) from exc


def folder_of(df: Any) -> Folder:
    """Return the folder that a table was read from, above the folders of partitions.

    Raises
    ------
    ExpressionError
        If it does not begin with one of curator_df's readers.
    InputError
        If its files are in several folders.
    """
    try:
        source: Any = origin_of(df).source
    except ExpressionError as exc:
        raise ExpressionError(
            "this table was not read from the output folder of a run: it does not begin with one of curator_df's readers. Pass "
            "the path of that folder, or the table that the run returned or that read_parquet(path) returns"
        ) from exc
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
