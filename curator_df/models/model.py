# SPDX-License-Identifier: Apache-2.0
"""Model and how it runs, as one value that every model operator takes: `model` and `Model`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from curator_df.arguments import choose, require_string
from curator_df.errors import ParameterError
from curator_df.memory.resources import Resources
from curator_df.models.classifiers.catalogue import Classifier, named
from curator_df.models.devices import Dtype
from curator_df.suggestions import did_you_mean, suggests_names

BatchRows = int | Literal["auto"]
"""Maximum number of documents of a batch; ``"auto"``: as many as its padded tokens allow, of which the best number is measured
first."""
COUNTS = ("max_tokens", "max_chars", "max_batch_tokens")
"""Settings that are numbers of 1 or more."""


@suggests_names
@dataclass(frozen=True)
class Model:
    """A model and how it runs, as returned by `model`. Operators take it in place of a name, path or function.

    See Also
    --------
    model, resources
    """

    model: Any
    """Folder, ID on the Hugging Face hub, file, function, pipeline, or entry of `curator_df.classifiers`."""
    max_tokens: int | None = None
    """Maximum number of tokens read of a text; None for the model's or the operator's default."""
    max_chars: int | None = None
    """Maximum number of characters read of a text; None for the default."""
    model_inference_batch_size: BatchRows = "auto"
    """Maximum number of documents in a batch."""
    max_batch_tokens: int | None = None
    """Maximum number of tokens in a batch, including padding; None for the default."""
    compute_dtype: Dtype = "auto"
    """Number format of the computation."""
    resources: Resources | None = None
    """Resources of one call; None for one thread."""
    revision: str | None = None
    """Commit, tag or branch on the hub; None for the pinned or the latest one."""
    trust_remote_code: bool = False
    """Whether Python code that comes with the model may run."""

    def __post_init__(self) -> None:
        """Raise for values that no operator accepts."""
        for name in COUNTS:
            if getattr(self, name) is not None:
                require_count("model", name, getattr(self, name))
        if self.model_inference_batch_size != "auto":
            require_count("model", "model_inference_batch_size", self.model_inference_batch_size)
        choose("model", "compute_dtype", self.compute_dtype, Dtype)
        require_resources("model", self.resources)
        if self.revision is not None:
            require_string("model", "revision", self.revision)
        if not isinstance(self.trust_remote_code, bool):
            raise ParameterError(f"model: trust_remote_code={self.trust_remote_code!r} must be True or False")

    def replace(self, **changes: Any) -> Model:
        """Return the model with other settings.

        Examples
        --------
        >>> Model("a/model", max_tokens=256).replace(max_batch_tokens=4_096).max_tokens
        256
        """
        names = [each.name for each in fields(self)]
        if unknown := [name for name in changes if name not in names]:
            raise ParameterError(
                f"Model.replace: {unknown[0]!r} is not a setting of a model.{did_you_mean(unknown[0], names)} "
                f"The settings are: {', '.join(names)}"
            )
        return replace(self, **changes)

    @classmethod
    def of(cls, model: Any) -> Model:
        """Return a model with its settings: the default ones for a name, path, function, pipeline or entry of the catalog.

        The name of an entry of the catalog becomes the entry.
        """
        made = model if isinstance(model, cls) else cls(model)
        return replace(made, model=named(made.model))


def model(
    model: str | os.PathLike[str] | Callable[[Sequence[str]], Any] | Classifier,
    *,
    max_tokens: int | None = None,
    max_chars: int | None = None,
    model_inference_batch_size: BatchRows = "auto",
    max_batch_tokens: int | None = None,
    compute_dtype: Dtype = "auto",
    resources: Resources | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> Model:
    """Declare a model and how it runs: how much it reads of a text, in which batches, number format and resources.

    Parameters
    ----------
    model : str, path, callable or Classifier
        A folder with a model and its tokenizer, or the ID of a model on the Hugging Face hub; and whatever else the
        operator takes: a function of a list of strings, an entry of `curator_df.classifiers` or its name, a fastText
        file, or a scikit-learn pipeline.
    max_tokens : int, optional
        Tokens of a text to read, after which it is truncated; by default the model's limit, but at most 512.
    max_chars : int, optional
        Characters of a text to tokenize (or to pass to a function); by default 16 per token, and more where these make
        fewer than ``max_tokens`` tokens. A function gets whole texts by default.
    model_inference_batch_size : int or "auto"
        Maximum documents in a batch. By default only tokens limit a batch, and the best number of tokens is measured at
        first, up to ``max_batch_tokens``; a function gets 256 documents.
    max_batch_tokens : int, optional
        Maximum tokens in a batch, including padding; the plan reserves memory for it. The default is 2,048, or on a GPU
        as many as fit into the memory that a call may use.
    compute_dtype : {"auto", "float32", "bfloat16"}
        Number format of the model's computation. With bfloat16 the matrix products use numbers of half the size, and
        vectors change by about one percent. By default float32 on CPUs, bfloat16 on a GPU.
    resources : Resources, optional
        What one call of the model takes of its worker, from `curator_df.resources`. By default one thread, with as many
        concurrent calls as there are threads. With ``gpus=`` or ``gpu_memory=`` it runs on the worker's GPU, which has
        not been tried on a real one.
    revision : str, optional
        Commit, tag or branch of a model on the hub. Defaults to the one in the catalog, or to the latest for a model
        ID. Required for a catalog entry without one.
    trust_remote_code : bool, default False
        Whether Python code of a model that transformers does not know may run, in every worker.

    Returns
    -------
    Model
        Value for `add_embedding`, `add_class`, `keep_class` and `add_prompt_scores`. Several steps can share it.

    Raises
    ------
    ParameterError
        If a setting is out of range or of another type.

    See Also
    --------
    resources, add_embedding, add_class

    Notes
    -----
    Computes: no. See ``docs/models.md#how-a-model-runs``.

    Nothing is read, downloaded or loaded: the operator does that when it gets the value. A function, a pipeline and a
    fastText file take only some of the settings; the operator refuses the others.

    Examples
    --------
    >>> minilm = model("sentence-transformers/all-MiniLM-L6-v2", max_tokens=256, compute_dtype="bfloat16")
    >>> minilm.replace(max_batch_tokens=4_096).max_tokens
    256
    """
    _require_source(model)
    return Model(
        model,
        max_tokens=max_tokens,
        max_chars=max_chars,
        model_inference_batch_size=model_inference_batch_size,
        max_batch_tokens=max_batch_tokens,
        compute_dtype=compute_dtype,
        resources=resources,
        revision=revision,
        trust_remote_code=trust_remote_code,
    )


def _require_source(value: Any) -> None:
    """Raise `ParameterError` unless a value can be a model."""
    if isinstance(value, Model):
        raise ParameterError("model: this is a Model already. Change its settings with its method replace()")
    is_pipeline = hasattr(value, "predict")
    if not (isinstance(value, (str, os.PathLike, Classifier)) or callable(value) or is_pipeline):
        raise ParameterError(
            f"model: model={value!r} must be a path, the ID of a model on the hub, a function, a pipeline, or an entry of "
            f"cdf.classifiers, not {type(value).__name__}"
        )


def require_resources(operator: str, resources: object) -> None:
    """Raise `ParameterError` unless the value is a result of `curator_df.resources`, or None."""
    if resources is not None and not isinstance(resources, Resources):
        raise ParameterError(
            f"{operator}: resources={resources!r} is not what cdf.resources() returns. Pass, for example, "
            "resources=cdf.resources(gpus=1)"
        )


def require_count(operator: str, name: str, value: object) -> int:
    """Return a number of 1 or more, or raise `ParameterError`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        auto = " or 'auto'" if name == "model_inference_batch_size" else ""
        raise ParameterError(f"{operator}: {name}={value!r} is not a whole number of 1 or more{auto}")
    return value
