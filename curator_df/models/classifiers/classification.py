# SPDX-License-Identifier: Apache-2.0
"""Classify texts with a model: `add_class` and `keep_class`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from curator_df.arguments import strings_of
from curator_df.core.columns import refuse_columns
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.errors import ParameterError
from curator_df.kernels.rows.keep_rows import keep_rows
from curator_df.kernels.text.buffers import repeated_texts, text_chunks
from curator_df.memory.resources import Resources
from curator_df.models.batches import BatchCounts
from curator_df.models.classifiers.class_models import Classifies, Found, answer_tokens, chosen_model
from curator_df.models.classifiers.class_scores import ClassScores
from curator_df.models.inference import run_model
from curator_df.models.text_model import facts_of, price_of
from curator_df.ops.host_only import require_host

ROW_BYTES = 100
"""Row size for which the memory multipliers hold; a block of shorter rows is halved if it does not fit."""
ADD_FACTOR = 0.8
"""Memory multiplier without the names of the classes: codes, numbers, their conversion to strings, and truncated texts."""
KEEP_FACTOR = 1.5
"""Memory multiplier of `keep_where`, codes and numbers."""
FILTER_FACTOR = 1.2
"""Added by the rows that `keep_class` keeps, with the columns of ``into``: what `keep_where` takes."""
TOKEN_BYTES = 8
"""Bytes of a token of an answer; twice that while its column is made. Assumed."""
NO_CLASS = "no_class"
"""Reason of dropped rows without a class: those without text, and those with NaN in the model's output."""


def add_class(
    df: dd.DataFrame,
    classifier: Classifies,
    *,
    into: str = "label",
    labels: Sequence[str] | None = None,
    thresholds: Mapping[str, float] | None = None,
    score_of: str | None = None,
    answer_into: str | None = None,
    text: str = "text",
) -> dd.DataFrame:
    """Add the class that a model assigns to each text, and its score.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    classifier : Classifier, str, path, pipeline, callable or Model
        One of `curator_df.classifiers`, or its name such as ``"FINEWEB_EDU"``; a folder with a text classification model
        and its tokenizer, or the ID of one on the Hugging Face hub; a fastText file (``.bin``, ``.ftz``), or its address
        on the hub (``hf://organization/name/model.bin``); a fitted scikit-learn pipeline that takes texts,
        as an object or a skops file (``.skops``); or a function of a list of strings that returns an array of shape
        (texts, classes), where the largest number in each row gives the class. To say how it runs (batches, number
        format, GPU, revision), wrap it in `model`: ``cdf.model(cdf.classifiers.DOMAIN, resources=...)``.
    into : str, default "label"
        Name of the class column; the score column is named with the suffix ``_score``.
    labels : sequence of str, optional
        Names of the classes, in the order of the model's outputs. Required for a function; defaults to the model's names.
        For a model with one output, ``thresholds`` has the names.
    thresholds : mapping of str to float, optional
        For a model with one output per text: the lowest score of each class, such as ``{"high": 2.5, "low": 0.0}``. A
        text below all of them gets the lowest class.
    score_of : str, optional
        Class whose score to return, whichever class the text has: for example how good a text is, for a model with the
        classes good and bad. By default the score of the text's own class.
    answer_into : str, optional
        For a generative classifier (Aegis): column for the raw answers, which show why a class is unknown.
    text : str, default "text"
        The text column.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows with two columns, null where the text is null: the class, and as ``Float32`` its score. The score
        is the class probability; for a model with one output, that output; for a function, its value for the class; for
        a generative classifier, the probability of the whole answer. With ``answer_into`` also the answers.

    Raises
    ------
    ColumnError
        If the text column is missing, or a new column already exists.
    InputError
        If the model does not exist, or some of its files are missing.
    ParameterError
        If the model has no safetensors file or is not a classifier, a catalog entry has no commit, or a
        parameter is out of range.
    OperatorError
        When computing, if a function returns anything but such an array.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    keep_class, add_quality_tier, model

    Notes
    -----
    Rows: same. Columns: plus ``label`` and ``label_score``, and with ``answer_into=`` the raw answers of Aegis.
    Backends: pandas. Peak extra memory: 0.9 x block for rows of 100 bytes and short class names, and the model
    (``docs/models.md#memory``). Computes: no; it reads the model's files.

    If any output for a text is NaN, the text has no class: the class is null. To keep only the rows of some classes,
    use `keep_class`.

    The notes on memory and batches in `add_embedding` apply here too.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["to be", "or not to be"]}), npartitions=1)
    >>> def lengths(texts):
    ...     return [[10 - len(text), len(text)] for text in texts]
    >>> docs.pipe(add_class, lengths, labels=["short", "long"]).compute()[["label", "label_score"]].values.tolist()
    [['short', 5.0], ['long', 12.0]]
    """
    columns = _new_columns(df, "add_class", into, answer_into)
    model, resources, scores = chosen_model(df, "add_class", classifier, text, labels, thresholds)
    if score_of is not None:
        scores = scores.of_class("add_class", score_of)
    factor = _add_factor("add_class", model, scores, answer_into)
    parameters = {"text": text, "into": into, "model": model, "scores": scores, "resources": resources}
    kernel = _kernel("add_class", add_class_block, parameters | {"answer_into": answer_into}, factor)
    return map_blocks(df, kernel, meta=df._meta.assign(**columns))


def keep_class(
    df: dd.DataFrame,
    classifier: Classifies,
    *,
    classes: str | Sequence[str],
    into: str | None = None,
    labels: Sequence[str] | None = None,
    thresholds: Mapping[str, float] | None = None,
    score_of: str | None = None,
    answer_into: str | None = None,
    text: str = "text",
) -> dd.DataFrame:
    """Keep the rows whose text a model assigns to one of the given classes.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    classifier : Classifier, str, path, pipeline, callable or Model
        As in `add_class`.
    classes : str or sequence of str
        Classes of the rows to keep.
    into : str, optional
        Name of a column for the class of the kept rows; the score column is named with the suffix ``_score``. By
        default neither is added.
    score_of, answer_into
        As in `add_class`. Without ``into``, the score is only in the rejects.
    labels, thresholds
        As in `add_class`.
    text : str, default "text"
        The text column.

    Returns
    -------
    dask.dataframe.DataFrame
        The rows of these classes, in order; with ``into`` and ``answer_into`` plus these columns. Dropped rows are
        counted by class, ``class_<name>``; rows without text, or whose model output is NaN, as ``no_class``.

    Raises
    ------
    ColumnError
        If the text column is missing, or a new column already exists.
    InputError
        If the model does not exist, or some of its files are missing.
    ParameterError
        If ``classes`` is empty or names a class that the model does not have, and as in `add_class`.
    OperatorError
        When computing, if a function returns anything but such an array.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    add_class, add_quality_tier

    Notes
    -----
    Rows: subset. Columns: same; with ``into=`` plus the class and its score. Backends: pandas. Peak extra memory: 1.5 x
    block; with ``into=`` 2.1 x block for rows of 100 bytes and short class names; and the model
    (``docs/models.md#memory``). Computes: no; it reads the model's files.

    Rejects have the class as ``reject_rule`` and its score as ``reject_value``. To inspect the classes before dropping
    rows, use `add_class`, `checkpoint` and then `keep_where`. Chain several calls to apply several classifiers.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["to be", "or not to be"]}), npartitions=1)
    >>> def lengths(texts):
    ...     return [[10 - len(text), len(text)] for text in texts]
    >>> docs.pipe(keep_class, lengths, classes="long", labels=["short", "long"]).compute()["text"].tolist()
    ['or not to be']
    """
    columns = _new_columns(df, "keep_class", into, answer_into)
    model, resources, scores = chosen_model(df, "keep_class", classifier, text, labels, thresholds)
    if score_of is not None:
        scores = scores.of_class("keep_class", score_of)
    wanted = _known("keep_class", classes, scores)
    parameters: dict[str, Any] = {"text": text, "classes": wanted, "model": model, "scores": scores}
    parameters |= {"into": into, "answer_into": answer_into, "resources": resources}
    factor = KEEP_FACTOR
    if columns:
        factor = round(_add_factor("keep_class", model, scores, answer_into) + FILTER_FACTOR, 1)
    return map_blocks(df, _kernel("keep_class", keep_class_block, parameters, factor), meta=df._meta.assign(**columns))


def _new_columns(df: Any, operator: str, into: str | None, answer_into: str | None) -> dict[str, Any]:
    """Return the columns that are added, empty; raise `ColumnError` if the table has one of them."""
    names = [] if into is None else [into, f"{into}_score"]
    refuse_columns(df, operator, *names, *([] if answer_into is None else [answer_into]))
    dtypes: dict[str, Any] = {}
    if into is not None:
        dtypes |= {into: pd.StringDtype("pyarrow"), f"{into}_score": "Float32"}
    if answer_into is not None:
        dtypes[answer_into] = pd.StringDtype("pyarrow")
    return {name: pd.Series([], dtype=dtype) for name, dtype in dtypes.items()}


def _add_factor(operator: str, model: Found, scores: ClassScores, answer_into: str | None) -> float:
    """Return the peak factor of the columns that are added."""
    longest = max(len(name.encode()) for name in scores.labels)
    if answer_into is not None:
        longest += 2 * TOKEN_BYTES * answer_tokens(operator, model)
    return round(math.ceil(10 * ADD_FACTOR + 10 * longest / ROW_BYTES) / 10, 1)


def _known(operator: str, names: str | Sequence[str], scores: ClassScores) -> tuple[str, ...]:
    """Return names of classes; raise `ParameterError` if there are none, or one is not a class of the model."""
    wanted, known = strings_of(operator, "classes", names), ", ".join(map(repr, scores.labels))
    if not wanted:
        raise ParameterError(
            f"{operator}: classes={names!r} is empty, so no row would be kept. Use at least one of: {known}"
        )
    if unknown := [name for name in wanted if name not in scores.labels]:
        raise ParameterError(
            f"{operator}: classes= has {unknown[0]!r}, which is not a class of the model. Use classes among: {known}"
        )
    return wanted


def _kernel(operator: str, function: Callable[..., Any], parameters: dict[str, Any], peak_factor: float) -> BlockKernel:
    model = parameters["model"]
    price = Price(peak_factor, is_measured=parameters.get("answer_into") is None)
    price = price_of(operator, model, parameters["resources"], price)
    parameters |= {"resources": price.resources}
    return BlockKernel(operator, function, parameters, price, **facts_of(model))


def add_class_block(
    block: Any,
    *,
    text: str,
    into: str,
    model: Found,
    scores: ClassScores,
    resources: Resources,
    answer_into: str | None,
) -> Outcome:
    """Kernel of `add_class`."""
    require_host(block, "add_class")
    made, _, _, counts = _with_classes(block, text, model, scores, resources, into, answer_into)
    return Outcome(made, counters=counts.counters(), peaks=counts.peaks)


def keep_class_block(
    block: Any,
    *,
    text: str,
    classes: tuple[str, ...],
    model: Found,
    scores: ClassScores,
    resources: Resources,
    into: str | None,
    answer_into: str | None,
) -> Outcome:
    """Kernel of `keep_class`."""
    require_host(block, "keep_class")
    made, codes, numbers, counts = _with_classes(block, text, model, scores, resources, into, answer_into)
    return _of_classes(made, codes, numbers, scores, classes, counts)


def _with_classes(
    block: Any,
    text: str,
    model: Found,
    scores: ClassScores,
    resources: Resources,
    into: str | None,
    answer_into: str | None,
) -> tuple[Any, npt.NDArray[np.int32], npt.NDArray[np.float32], BatchCounts]:
    """Return the block with the new columns, and what they are made of."""
    answers: list[str | None] | None = None if answer_into is None else [None] * len(block)
    codes, numbers, counts = _classified(block, text, model, scores, resources, answers)
    columns = {}
    if into is not None:
        columns[into] = pd.Series(repeated_texts(scores.labels, codes), index=block.index, copy=False)
        masked = pd.arrays.FloatingArray(numbers, codes < 0)
        columns[f"{into}_score"] = pd.Series(masked, index=block.index, copy=False)
    if answer_into is not None:
        dtype: Any = pd.StringDtype("pyarrow")
        column = dtype.__from_arrow__(pa.chunked_array([pa.array(answers, pa.large_string())]))
        columns[answer_into] = pd.Series(column, index=block.index, copy=False)
    return block.assign(**columns) if columns else block, codes, numbers, counts


def _of_classes(
    block: Any,
    codes: npt.NDArray[np.int32],
    numbers: npt.NDArray[np.float32],
    scores: ClassScores,
    keep: tuple[str, ...],
    counts: BatchCounts,
) -> Outcome:
    """Return the rows of some classes, and the other rows by their class."""
    staying = np.isin(codes, [scores.labels.index(name) for name in keep])
    if staying.all():
        return Outcome(block, counters=counts.counters(), peaks=counts.peaks)
    names = np.array(
        [*(f"class_{name}" for name in scores.labels), NO_CLASS], dtype=object
    )  # code -1 selects the last one
    reasons = names[codes[~staying]]
    found, rows = np.unique(reasons, return_counts=True)

    def rejects() -> tuple[Any, dict[str, Any]]:
        rules = [None if code < 0 else scores.labels[code] for code in codes[~staying]]
        said = {"reason": reasons.tolist(), "rule": rules, "value": numbers[~staying]}
        if scores.bounds:
            said["threshold"] = [_threshold(int(code), scores, keep) for code in codes[~staying]]
        return keep_rows(block, ~staying), said

    dropped = dict(zip(found.tolist(), rows.tolist(), strict=True))
    return Outcome(keep_rows(block, staying), dropped, counts.counters(), rejects, peaks=counts.peaks)


def _threshold(code: int, scores: ClassScores, keep: tuple[str, ...]) -> float | None:
    """Return the bound of the nearest kept class, which the score of a text of another class does not reach."""
    kept = sorted(scores.labels.index(name) for name in keep)
    above, below = [place for place in kept if place > code], [place for place in kept if place < code]
    if code < 0 or not kept:
        return None
    return scores.bounds[above[0] - 1] if above else scores.bounds[below[-1]]


def _classified(
    block: Any,
    text: str,
    model: Found,
    scores: ClassScores,
    resources: Resources,
    answers: list[str | None] | None = None,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32], BatchCounts]:
    """Return the class number of each row (-1: none), its score, and counters; with ``answers``, fill it with the answers."""
    codes: npt.NDArray[np.int32] = np.full(len(block), -1, dtype=np.int32)
    numbers: npt.NDArray[np.float32] = np.full(len(block), np.nan, dtype=np.float32)

    def keep(places: npt.NDArray[np.int64], made: npt.NDArray[Any]) -> None:
        codes[places], numbers[places] = scores.read(made)
        if answers is not None:
            for place, answer in zip(places.tolist(), made[:, 2], strict=True):
                answers[place] = answer

    counts = run_model(model, text_chunks(block[text]), keep, resources)
    return codes, numbers, counts
