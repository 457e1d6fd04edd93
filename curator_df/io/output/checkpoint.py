# SPDX-License-Identifier: Apache-2.0
"""Compute a table once and continue from its files: `checkpoint`."""

from __future__ import annotations

import os
from typing import Any

import dask.dataframe as dd

from curator_df.core.planning.first_steps import Reuse
from curator_df.core.ranges.journal import OnExisting
from curator_df.core.tasks.task import OnError, OnOom
from curator_df.io.output.formats import folder_at
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
    reuse: Reuse = "auto",
    storage_options: dict[str, Any] | None = None,
) -> dd.DataFrame:
    """Run a chain, write it to Parquet files, and return the table read back from them.

    After a checkpoint, its output is read instead of the input, by any number of runs. A second call with the same input and
    chain finds the files complete and computes nothing. To run the steps before a ``drop_`` once within one run, a
    checkpoint is not needed: see ``reuse=`` of `write_parquet`.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A table of Dask. A chain on one of the readers is streamed; any other table is first computed into working files.
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
    reuse : {"auto", "always", "never"}
        Whether the first steps run once for all passes of a later drop; see `write_parquet`.
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
    folder_at(path, storage_options)  # refuses a dataset of the hub, which write_parquet would publish
    write_parquet(
        df,
        path,
        rejects=rejects,
        workdir=workdir,
        on_existing=on_existing,
        on_error=on_error,
        on_oom=on_oom,
        reuse=reuse,
        storage_options=storage_options,
    )
    return read_parquet(path, storage_options=storage_options)
