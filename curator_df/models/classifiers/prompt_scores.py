# SPDX-License-Identifier: Apache-2.0
"""Task type and complexity of prompts: `add_prompt_scores`."""

from __future__ import annotations

import os
from typing import Any

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.core.arguments import path_of
from curator_df.core.columns import refuse_columns, require_text
from curator_df.core.memory.resources import NO_LIMITS, Resources
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.kernels.text.buffers import repeated_texts, text_chunks
from curator_df.models.classifiers.catalogue import DEBERTA_REVISION
from curator_df.models.classifiers.prompt_tasks import NO_TASK, NUMBERS, PromptTasks
from curator_df.models.inference import run_model
from curator_df.models.model import Model
from curator_df.models.text_model import TextModel, price_of, text_model
from curator_df.ops.host_only import require_host

OPERATOR = "add_prompt_scores"
TASKS = ("task_type_1", "task_type_2")
MODEL = "nvidia/prompt-task-and-complexity-classifier"
REVISION = "fea1121511eafabaf7dd6fc66863dcb04f74defb"
"""Commit of that model; see docs/models.md."""
MAX_TOKENS = 512
"""Tokens of a prompt that are read by default."""
MAX_CHARS = 2_000
"""Characters of a prompt that are read by default."""
PEAK_FACTOR = 1.5
"""Memory multiplier for rows of 100 bytes (benchmarks/kernel_memory.py): nine columns of numbers of 9 bytes and two of names.
1.43 was measured with names of 15 letters, and below 0.1 for longer rows."""


def add_prompt_scores(
    df: dd.DataFrame,
    *,
    model: str | os.PathLike[str] | Model = MODEL,
    prefix: str = "",
    text: str = "text",
) -> dd.DataFrame:
    """Add the task type of each prompt and its complexity scores, from NVIDIA's prompt task and complexity classifier.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    model : str, path or Model
        A folder, or the ID of a model on the Hugging Face hub, of the same architecture; NVIDIA's model has a pinned
        commit. To say how it runs, wrap it in `model`. By default 512 tokens of 2,000 characters are read of a prompt.
    prefix : str, default ""
        Prefix of the column names.
    text : str, default "text"
        Column with the prompt.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows with eleven columns, null where the text is null: ``task_type_1`` and ``task_type_2``, names of
        the most probable tasks (the second is ``NA`` below a probability of 0.1); and as ``Float64``
        ``task_type_prob``; from 0 to 1 ``creativity_scope``, ``reasoning``, ``contextual_knowledge``,
        ``domain_knowledge``, ``no_label_reason``, ``constraint_ct``; from 0 up ``number_of_few_shots``; and
        ``prompt_complexity_score``, the weighted sum of six of them.

    Raises
    ------
    ColumnError
        If the text column is missing, or a new column already exists.
    InputError
        If the model does not exist, or some of its files are missing.
    ParameterError
        If the model is of another kind or has no safetensors file, or a parameter is out of range.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    Notes
    -----
    Rows: same. Columns: plus eleven. Backends: pandas. Peak extra memory: 1.5 x block for rows of 100 bytes, and the
    model (``docs/models.md#memory``). Computes: no; it reads the model's files.

    The notes on memory and batches in `add_embedding` apply here too.

    References
    ----------
    .. [1] https://huggingface.co/nvidia/prompt-task-and-complexity-classifier; nemo_curator 0.9.0,
       ``classifiers/prompt_task_complexity.py``

    Examples
    --------
    >>> docs = cdf.add_prompt_scores(docs, text="prompt")  # doctest: +SKIP
    """
    require_text(df, OPERATOR, text)
    require_host(df._meta, OPERATOR)
    dtypes: dict[str, Any] = {
        **{f"{prefix}{name}": pd.StringDtype("pyarrow") for name in TASKS},
        **{f"{prefix}{name}": "Float64" for name in NUMBERS},
    }
    refuse_columns(df, OPERATOR, *dtypes, parameter="prefix")
    chosen = Model.of(model)
    is_published = chosen.revision in (None, REVISION) and chosen.model == MODEL
    chosen = chosen.replace(
        model=path_of(OPERATOR, "model", chosen.model),
        revision=REVISION if is_published else chosen.revision,
        max_tokens=chosen.max_tokens or MAX_TOKENS,
        max_chars=chosen.max_chars or MAX_CHARS,
    )
    found = text_model(OPERATOR, chosen, head="classes", base_revision=DEBERTA_REVISION if is_published else None)
    tasks = PromptTasks.of(OPERATOR, found.files)
    price = price_of(OPERATOR, found, chosen.resources or NO_LIMITS)
    parameters = {"text": text, "prefix": prefix, "model": found, "tasks": tasks, "resources": price["resources"]}
    kernel = BlockKernel(OPERATOR, add_prompt_scores_block, parameters, PEAK_FACTOR, peak_is_measured=True, **price)
    return map_blocks(df, kernel, meta=df._meta.assign(**{n: pd.Series([], dtype=d) for n, d in dtypes.items()}))


def add_prompt_scores_block(
    block: Any, *, text: str, prefix: str, model: TextModel, tasks: PromptTasks, resources: Resources
) -> Outcome:
    """Kernel of `add_prompt_scores`."""
    require_host(block, OPERATOR)
    texts = text_chunks(block[text])
    codes: npt.NDArray[np.int32] = np.full((len(TASKS), len(block)), -1, dtype=np.int32)
    numbers: npt.NDArray[np.float64] = np.full((len(NUMBERS), len(block)), np.nan)

    def keep(places: npt.NDArray[np.int64], made: npt.NDArray[np.float32]) -> None:
        kinds, read = tasks.read(made)
        codes[:, places] = np.where(kinds < 0, len(tasks.tasks), kinds).T
        numbers[:, places] = read.T

    counts = run_model(model, texts, keep, resources)
    names, is_null = (*tasks.tasks, NO_TASK), codes[0] < 0
    columns: dict[str, Any] = {
        f"{prefix}{name}": repeated_texts(names, found) for name, found in zip(TASKS, codes, strict=True)
    }
    for name, found in zip(NUMBERS, numbers, strict=True):
        columns[f"{prefix}{name}"] = pd.arrays.FloatingArray(found, is_null.copy())
    made = {name: pd.Series(column, index=block.index, copy=False) for name, column in columns.items()}
    return Outcome(block.assign(**made), counters=counts.counters(), peaks=counts.peaks)
