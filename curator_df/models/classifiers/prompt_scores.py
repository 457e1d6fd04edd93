# SPDX-License-Identifier: Apache-2.0
"""Task type and complexity of prompts: `add_prompt_scores`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.arguments import path_of
from curator_df.core.columns import refuse_columns, require_text
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.errors import ParameterError
from curator_df.kernels.text.buffers import repeated_texts, text_chunks
from curator_df.memory.resources import NO_LIMITS, Resources
from curator_df.models.classifiers.catalogue import DEBERTA_REVISION
from curator_df.models.files import ModelFiles, read_object
from curator_df.models.inference import run_model
from curator_df.models.model import Model
from curator_df.models.text_model import TextModel, facts_of, price_of, text_model
from curator_df.ops.host_only import require_host

SCORES = (
    "creativity_scope",
    "reasoning",
    "contextual_knowledge",
    "number_of_few_shots",
    "domain_knowledge",
    "no_label_reason",
    "constraint_ct",
)
"""Scores of the layers after the first, which gives the task."""
COMPLEXITY = {
    "creativity_scope": 0.35,
    "reasoning": 0.25,
    "constraint_ct": 0.15,
    "domain_knowledge": 0.15,
    "contextual_knowledge": 0.05,
    "number_of_few_shots": 0.05,
}
"""Weights of the scores in the total."""
LEAST_SECOND_TASK = 0.1
"""Minimum probability of a second task."""
LEAST_FEW_SHOTS = 0.05
"""Minimum score from which examples are counted."""
NO_TASK = "NA"
NUMBERS = ("task_type_prob", *SCORES, "prompt_complexity_score")
"""Columns of numbers, in the order of `PromptTasks.read`."""


@dataclass(frozen=True)
class PromptTasks:
    """Interpretation of a model's layers."""

    tasks: tuple[str, ...]
    """Task types, in the order of the first layer's numbers."""
    weights: tuple[tuple[float, ...], ...]
    """Weight of each number of a layer, for each of `SCORES`."""
    divisors: tuple[float, ...]
    """Divisor of the weighted sum, for each of `SCORES`."""

    @classmethod
    def of(cls, operator: str, files: ModelFiles) -> PromptTasks:
        """Read the interpretation from the configuration of a model; raise `ParameterError` for another kind of model."""
        config = read_object(Path(files.local_folder(), "config.json"))
        given = [config.get(name) for name in ("task_type_map", "weights_map", "divisor_map")]
        maps: list[Mapping[str, Any]] = [each if isinstance(each, dict) else {} for each in given]
        lacking = [name for name in SCORES if name not in maps[1] or name not in maps[2]]
        widths = (len(maps[0]), *(len(maps[1].get(name, ())) for name in SCORES))
        if files.layers is None or lacking or files.layers.widths != widths or files.layers.pooling != "mean":
            raise ParameterError(
                f"{operator}: {files.name!r} is not a prompt task model: it lacks the layers head_0.fc to head_7.fc, or "
                "task_type_map, weights_map and divisor_map for them in its configuration. Use one such as "
                "nvidia/prompt-task-and-complexity-classifier"
            )
        return cls(
            tuple(str(maps[0][str(place)]) for place in range(len(maps[0]))),
            tuple(tuple(map(float, maps[1][name])) for name in SCORES),
            tuple(float(maps[2][name]) for name in SCORES),
        )

    def read(self, made: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return the tasks and scores of texts.

        Parameters
        ----------
        made : ndarray of float32, shape (texts, numbers of all layers)
            Outputs of the layers, one after the other.

        Returns
        -------
        tasks : ndarray of int64, shape (texts, 2)
            Positions of the likeliest task and of the second, -1 if that is unlikely.
        numbers : ndarray of float64, shape (texts, 9)
            Columns of `NUMBERS`.
        """
        bounds = np.cumsum([len(self.tasks), *map(len, self.weights)])[:-1]
        first, *others = (_softmax(part) for part in np.split(made, bounds, axis=1))
        tasks: npt.NDArray[np.int64] = np.argsort(-first, axis=1, kind="stable")[:, :2]
        likely = np.take_along_axis(first, tasks, axis=1).astype(np.float64).round(3)
        tasks[likely[:, 1] < LEAST_SECOND_TASK, 1] = -1
        scores = {
            name: ((part * np.array(weights)).sum(axis=1) / divisor).round(4)
            for name, part, weights, divisor in zip(SCORES, others, self.weights, self.divisors, strict=True)
        }
        few = scores["number_of_few_shots"]
        few[few < LEAST_FEW_SHOTS] = 0.0
        whole = sum(share * scores[name] for name, share in COMPLEXITY.items())
        return tasks, np.column_stack([likely[:, 0], *scores.values(), np.round(whole, 5)])


def _softmax(numbers: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    powers = np.exp(numbers - numbers.max(axis=1, keepdims=True))
    result: npt.NDArray[np.float32] = powers / powers.sum(axis=1, keepdims=True)
    return result


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

    See Also
    --------
    add_class, model

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
    price = price_of(OPERATOR, found, chosen.resources or NO_LIMITS, Price(PEAK_FACTOR, is_measured=True))
    parameters = {"text": text, "prefix": prefix, "model": found, "tasks": tasks, "resources": price.resources}
    kernel = BlockKernel(OPERATOR, add_prompt_scores_block, parameters, price, **facts_of(found))
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
