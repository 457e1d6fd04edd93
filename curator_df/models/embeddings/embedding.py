# SPDX-License-Identifier: Apache-2.0
"""Embed texts as vectors: `add_embedding`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from curator_df.arguments import choose
from curator_df.core.columns import refuse_columns, require_text
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.errors import CorruptFileError, OperatorError, ParameterError
from curator_df.files.hub import download
from curator_df.kernels.text.buffers import text_chunks
from curator_df.memory.resources import NO_LIMITS, Resources
from curator_df.models.callables import UserModel
from curator_df.models.files import AGAIN, ModelFiles, read_json, read_object
from curator_df.models.inference import run_model
from curator_df.models.model import Model, require_count
from curator_df.models.text_model import (
    TextModel,
    facts_of,
    price_of,
    text_model,
    user_model,
)
from curator_df.ops.host_only import require_host

CONFIG = "1_Pooling/config.json"
MODULES = "modules.json"
APPLIED = frozenset({"Transformer", "Pooling", "Normalize"})
"""Modules that `add_embedding` applies; its user decides whether vectors are normalized to length 1."""
_MODE = "pooling_mode"


def pooling_of(operator: str, files: ModelFiles) -> Literal["mean", "cls"]:
    """Return the pooling with which a model was trained, or the mean if it is not specified.

    Raises
    ------
    ParameterError
        If it is neither the mean nor the first token, or layers follow it.
    """
    folder = Path(files.local_folder())
    if files.revision is not None and not Path(folder, CONFIG).is_file():
        folder = Path(download(files.name, files.revision, [CONFIG, MODULES]))
    modules: Any = read_json(folder / MODULES) if (folder / MODULES).is_file() else []
    if not isinstance(modules, list) or not all(isinstance(module, dict) and "type" in module for module in modules):
        raise CorruptFileError(f"{folder / MODULES} must have a list of modules, each with its type. {AGAIN}")
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    if beyond := [kind for kind in kinds if kind not in APPLIED]:
        raise ParameterError(
            f"{operator}: {files.name!r} has a layer {beyond[0]} after its pooling, which is not supported. Use "
            "pooling='mean' or pooling='cls' for vectors without this layer, which differ from the model's own. To get its "
            "own vectors, set model= to a function that runs the model"
        )
    if not (folder / CONFIG).is_file():
        return "mean"
    said = read_object(folder / CONFIG)
    named = said.get(_MODE)  # newer releases have a name; older ones a flag for each
    flags = [name.removeprefix(f"{_MODE}_") for name, is_so in said.items() if name.startswith(_MODE) and is_so is True]
    match (
        [named] if isinstance(named, str) else [flag.removesuffix("_tokens").removesuffix("_token") for flag in flags]
    ):
        case ["mean"]:
            return "mean"
        case ["cls"]:
            return "cls"
    raise ParameterError(
        f"{operator}: {folder / CONFIG} specifies a pooling that is neither the mean of all tokens nor the first token. Use "
        "pooling='mean' or 'cls' for one of these, or pass a function"
    )


Pooling = Literal["auto", "mean", "cls"]
Precision = Literal["float32", "float16"]
ROW_BYTES = 100
"""Row size for which the memory multiplier holds; a block of shorter rows is halved if it does not fit."""


def add_embedding(
    df: dd.DataFrame,
    model: str | os.PathLike[str] | Callable[[Sequence[str]], Any] | Model,
    *,
    into: str = "embedding",
    pooling: Pooling = "auto",
    normalize_vectors: bool = True,
    precision: Precision = "float32",
    dimensions: int | None = None,
    text: str = "text",
) -> dd.DataFrame:
    """Add an embedding of each text: a vector, where texts with similar meaning have a high cosine similarity.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    model : str, path, callable or Model
        A folder with a model and its tokenizer, or the ID of a model on the Hugging Face hub; or a function of a list
        of strings that returns an array of shape (texts, ``dimensions``). To say how it runs (length of texts, batches,
        number format, GPU, revision), wrap it in `model`: ``cdf.model("a/model", max_tokens=256)``.
    into : str, default "embedding"
        Name of the column.
    pooling : {"auto", "mean", "cls"}
        How to pool the last layer: the mean over the tokens, or the vector of the first token. By default as specified
        next to the model (``1_Pooling/config.json``), or the mean if nothing is. Ignored for a function.
    normalize_vectors : bool, default True
        Whether to normalize vectors to length 1.
    precision : {"float32", "float16"}
        Number format for storage; ``compute_dtype`` of `model` is the one for computation.
    dimensions : int, optional
        Length of a vector; required for a function only.
    text : str, default "text"
        The text column.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows with a column of fixed-size lists; null where the text is null.

    Raises
    ------
    ColumnError
        If the text column is missing, or ``into`` already exists.
    InputError
        If the model does not exist, or some of its files are missing.
    ParameterError
        If the model has no safetensors file or another pooling method, or a parameter is out of range.
    OperatorError
        When computing, if a function returns anything but such an array, or a number of a vector that is not
        normalized is too large for float16.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    drop_semantic_duplicates, model, add_class

    Notes
    -----
    Rows: same. Columns: plus ``embedding``, a list of fixed size. Backends: pandas. Peak extra memory: 16.4 x block
    with 384 numbers for rows of 100 bytes (the vectors, and 1 x block), and the model (``docs/models.md#memory``).
    Computes: no; it reads the model's files.

    The plan reserves memory for the model: for the libraries and weights once in each worker, for a batch once in each
    task. Batches contain documents of similar length, as many as ``max_batch_tokens`` allows. When memory runs out, the
    batch is halved, and later batches are limited to the size that succeeded. None of this changes the results except for
    rounding (below 0.00001 in float32). Steps that use the same model share its weights.
    The receipt counts ``documents``, ``tokens``, ``padding_tokens``, ``batches`` and ``batches_halved``. Only
    safetensors files are loaded.

    References
    ----------
    .. [1] Reimers and Gurevych 2019, https://arxiv.org/abs/1908.10084

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["to be", "or not to be"]}), npartitions=1)
    >>> def lengths(texts):
    ...     return [[len(text), text.count("be")] for text in texts]
    >>> docs.pipe(add_embedding, model=lengths, dimensions=2, normalize_vectors=False).compute()["embedding"].tolist()
    [[5.0, 1.0], [12.0, 1.0]]
    """
    operator = "add_embedding"
    require_text(df, operator, text)
    require_host(df._meta, operator)
    refuse_columns(df, operator, into)
    choose(operator, "pooling", pooling, Pooling)
    choose(operator, "precision", precision, Precision)
    parameters: dict[str, Any] = {"text": text, "into": into, "precision": precision}
    parameters["normalize_vectors"] = normalize_vectors
    chosen = Model.of(model)
    if callable(chosen.model):
        if dimensions is None:
            raise ParameterError(
                f"{operator}: a function as model needs dimensions=. Set it to the number of values that the function "
                "returns for each text"
            )
        if pooling != "auto":
            raise ParameterError(
                f"{operator}: pooling={pooling!r} applies only to transformers models, not to a function. Leave pooling= "
                "out"
            )
        width = require_count(operator, "dimensions", dimensions)
        parameters |= {"model": user_model(operator, chosen, width)}
    else:
        found = text_model(operator, chosen, head="mean" if pooling == "auto" else pooling)
        if pooling == "auto":
            found = dataclasses.replace(found, head=pooling_of(operator, found.files))
        if dimensions not in (None, found.files.hidden):
            raise ParameterError(
                f"{operator}: dimensions={dimensions}, but {chosen.model!r} makes vectors of {found.files.hidden} "
                "numbers. Leave dimensions= out"
            )
        width = found.files.hidden
        parameters |= {"model": found}
    dtype = vectors_dtype(width, precision)
    price = Price(round(1.0 + width * np.dtype(precision).itemsize / ROW_BYTES, 1), is_measured=True)
    price = price_of(operator, parameters["model"], chosen.resources or NO_LIMITS, price)
    parameters |= {"width": width, "resources": price.resources}
    kernel = BlockKernel(operator, add_embedding_block, parameters, price, **facts_of(parameters["model"]))
    return map_blocks(df, kernel, meta=df._meta.assign(**{into: pd.Series([], dtype=dtype)}))


def add_embedding_block(
    block: Any,
    *,
    text: str,
    into: str,
    model: TextModel | UserModel,
    width: int,
    normalize_vectors: bool,
    precision: Precision,
    resources: Resources,
) -> Outcome:
    """Kernel of `add_embedding`."""
    require_host(block, "add_embedding")
    vectors: npt.NDArray[Any] = np.zeros((len(block), width), dtype=precision)

    def keep(places: npt.NDArray[np.int64], made: npt.NDArray[np.float32]) -> None:
        vectors[places] = _stored(unit_vectors(made) if normalize_vectors else made, precision)

    texts = text_chunks(block[text])
    counts = run_model(model, texts, keep, resources)
    column = vectors_column(vectors, texts.is_null().to_numpy())
    return Outcome(
        block.assign(**{into: pd.Series(column, index=block.index, copy=False)}),
        counters=counts.counters(),
        peaks=counts.peaks,
    )


def _stored(vectors: npt.NDArray[np.float32], precision: Precision) -> npt.NDArray[Any]:
    """Return vectors in their stored format; raise `OperatorError` if a number is too large for it."""
    with np.errstate(over="ignore"):
        stored = vectors.astype(precision, copy=False)
    if (lost := np.isinf(stored) & np.isfinite(vectors)).any():
        raise OperatorError(
            f"add_embedding: a vector has the number {vectors[lost][0]:,.1f}, but precision={precision!r} stores "
            f"at most {np.finfo(precision).max:,.0f}. Use normalize_vectors=True or precision='float32'"
        )
    return stored


def unit_vectors(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return vectors of length 1 in the same directions; a vector of zeros does not change."""
    lengths: npt.NDArray[Any] = np.linalg.norm(vectors, axis=1, keepdims=True)
    result: npt.NDArray[np.float32] = vectors / np.maximum(lengths, np.float32(1e-12))
    return result


def vectors_dtype(width: int, precision: Precision) -> Any:
    """Return the type of a column of vectors."""
    return pd.ArrowDtype(pa.list_(pa.float16() if precision == "float16" else pa.float32(), width))


def vectors_column(vectors: npt.NDArray[Any], is_null: npt.NDArray[np.bool_]) -> Any:
    """Return vectors as a pandas array; the numbers are not copied."""
    numbers = pa.array(vectors.reshape(-1))
    mask = pa.array(is_null) if is_null.any() else None
    lists = pa.FixedSizeListArray.from_arrays(numbers, vectors.shape[1], mask=mask)
    dtype: Any = pd.ArrowDtype(lists.type)
    return dtype.__from_arrow__(pa.chunked_array([lists]))
