# SPDX-License-Identifier: Apache-2.0
"""Say what a chain would do and hold, without doing it."""

from __future__ import annotations

from typing import Literal

import dask.dataframe as dd

from curator_df.core.columns import choose
from curator_df.core.files.storage import Folder
from curator_df.core.memory.budget import choose_layout, parse_memory
from curator_df.core.planning.device_steps import for_sink
from curator_df.core.planning.plan import Plan, plan_stream
from curator_df.core.planning.program import lower
from curator_df.core.runner.session import current_session, has_session
from curator_df.io.output import FileSink
from curator_df.io.write import TARGET_FILE_BYTES, JsonlFormat, ParquetFormat


def explain(
    df: dd.DataFrame,
    *,
    memory: str | int | None = None,
    cpus: int | None = None,
    output: Literal["parquet", "jsonl"] = "parquet",
    rejects: bool = False,
) -> Plan:
    """Show the stages of a chain, their projected memory, and the layout with its reasons.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A chain that begins with `read_jsonl` or `read_parquet`.
    memory : str or int, optional
        Plan for this budget. Defaults to that of the running cluster, or 60 % of the machine's memory.
    cpus : int, optional
        Plan for this many CPUs; use together with ``memory``.
    output : {"parquet", "jsonl"}
        The output format of the chain.
    rejects : bool
        Whether the dropped rows will be written.

    Returns
    -------
    Plan
        A plan: stages, projected bytes, layout and why. It displays itself in terminals and notebooks.

    Raises
    ------
    BudgetError
        If the chain cannot fit; the message states the block size or the memory that would.
    ExpressionError
        If the chain cannot run block by block.

    Notes
    -----
    Rows: none. Peak extra memory: none. Computes: no.
    """
    if memory is None and cpus is None and has_session():
        layout = current_session().weigh_client()
    else:
        layout = choose_layout(parse_memory(memory), cpus=cpus)
    choose("explain", "output", output, ("parquet", "jsonl"))
    parquet = FileSink(Folder("."), ParquetFormat("zstd"), TARGET_FILE_BYTES)
    sink = parquet if output == "parquet" else FileSink(Folder("."), JsonlFormat("none"), TARGET_FILE_BYTES)
    return plan_stream(for_sink(lower(df)), sink, parquet if rejects else None, layout)
