# SPDX-License-Identifier: Apache-2.0
"""A model with the way in which texts reach it, as a value that goes to workers, and the memory that it takes there."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from curator_df.core.resources import Resources
from curator_df.core.set_up import SetUp, set_up
from curator_df.errors import ParameterError
from curator_df.models.answers import Answers
from curator_df.models.callables import DEFAULT_ROWS, UserModel
from curator_df.models.files import ModelFiles, find_adapted, find_answering, find_model

Head = Literal["mean", "cls", "classes"]
"""What is made of the last layer: the mean of its tokens, its first token, or the classes that the model has."""
BatchRows = int | Literal["auto"]
"""Most documents of a batch; ``"auto"``: as many as its padded tokens allow."""

CHARACTERS_PER_TOKEN = 16
"""A text is cut at so many characters for each token that the model reads, unless the user names a number."""
DEFAULT_BATCH_TOKENS = 2048
RUNTIME_BYTES = 330_000_000
"""What a process holds once torch and transformers are imported and a model has run (benchmarks/model_memory.py)."""
LOADING_FACTOR = 2
"""Weights are in memory twice while a model is loaded: its file as it is read, and the tensors."""
CALL_BYTES = 32_000_000
"""What a call holds whatever the model: the texts and tokens of a window, and buffers of matrix products."""
EAGER_KINDS = frozenset({"deberta", "deberta-v2"})
"""Kinds of models that hold a matrix of attention for each head, several times."""
EAGER_COPIES = 5
"""How many times, beside one for all distances between tokens (benchmarks/model_memory.py)."""
DISTANCE_COPIES = 2
"""Vectors of each distance that such a model makes for each document of a batch, as it is written in transformers: those of
queries and those of keys. 128 documents of 16 tokens took 486 MB in DeBERTa v3 base, and four of 512 tokens 308 MB."""
KEPT_COPIES = 2
"""Of what a language model keeps of each token: it is copied for every new token, and what was freed does not always fit the
next copy. With one copy 134 MB were seen where 127 MB were planned, late in a long process."""
CHOICE_COPIES = 3
"""Numbers of each token of the vocabulary that a language model makes for each document when it chooses the next one."""


@dataclass(frozen=True)
class TextModel:
    """A model and how it is used."""

    files: ModelFiles
    """Where it is, and how large."""
    head: Head
    """What is made of its last layer."""
    max_length: int
    """Tokens of a text that it reads."""
    max_chars: int
    """Characters of a text that become tokens."""
    batch_tokens: int = field(metadata={"identity": False})
    """Most padded tokens of a batch."""
    batch_rows: int | None = field(metadata={"identity": False})
    """Most documents of a batch."""
    center_chars: int | None = None
    """Characters on either side of a text's middle that are read at all; None for the text from its beginning."""
    answers: Answers | None = None
    """What a language model is asked about a text, of one that answers in words; its tokens are those of the whole prompt."""

    @property
    def held_bytes(self) -> int:
        """What a worker holds once: the libraries, and the weights as they are while they are loaded."""
        return RUNTIME_BYTES + LOADING_FACTOR * max(self.weight_bytes, self.files.weight_bytes)

    @property
    def libraries(self) -> dict[str, int]:
        """What of that stays when the run is over."""
        return {"torch": RUNTIME_BYTES}

    @property
    def call_bytes(self) -> int:
        """What each task holds while the model runs."""
        return CALL_BYTES + self.batch_bytes

    @property
    def batch_bytes(self) -> int:
        """Of that, the numbers of one layer for all tokens of a batch."""
        return max(self.batch_tokens, self.max_length + self.row_tokens) * self._token_bytes

    @property
    def row_tokens(self) -> int:
        """What a document takes however short it is, as tokens."""
        numbers = DISTANCE_COPIES * self.files.distances * self.files.hidden + CHOICE_COPIES * self.files.vocabulary
        return -(-4 * numbers // self._token_bytes) + (0 if self.answers is None else self.answers.new_tokens)

    @property
    def prompt_characters(self) -> int:
        """Characters that become tokens beside those of each text."""
        return 0 if self.answers is None else len(self.answers.before) + len(self.answers.after)

    @property
    def weight_bytes(self) -> int:
        """Weights as float32."""
        return 4 * self.files.parameters

    @property
    def _token_bytes(self) -> int:
        scores = 2 * self.max_length
        if self.files.kind in EAGER_KINDS:
            scores = self.files.heads * (EAGER_COPIES * self.max_length + self.files.distances)
        return 4 * (4 * self.files.hidden + 2 * self.files.inner + scores + KEPT_COPIES * self.files.kept_numbers)

    def fitting_tokens(self, call_bytes: int) -> int:
        """Return the most padded tokens of a batch for which a call needs no more than that; 0 where none fits."""
        tokens = max((call_bytes - CALL_BYTES) // self._token_bytes, 0)
        return tokens if tokens >= self.max_length + self.row_tokens else 0


def text_model(
    operator: str,
    name: str | os.PathLike[str],
    *,
    head: Head,
    revision: str | None,
    max_length: int | None,
    max_chars: int | None,
    batch_rows: BatchRows,
    batch_tokens: int,
    center_chars: int | None = None,
    adapter: str | None = None,
    answers: Answers | None = None,
) -> TextModel:
    """Find a model and check how it is to be used; see `find_model` for errors."""
    rows = None if batch_rows == "auto" else require_count(operator, "model_inference_batch_size", batch_rows)
    require_count(operator, "max_batch_tokens", batch_tokens)
    if answers is not None:
        files = find_answering(operator, name, revision)
    elif adapter is not None:
        files = find_adapted(operator, name, adapter, revision)
    else:
        files = find_model(operator, name, revision)
    if files.layers is not None and head != "classes":
        raise ParameterError(
            f"{operator}: {files.name!r} makes classes; it has layers of its own, and no vectors to give"
        )
    most = files.longest - (0 if answers is None else answers.new_tokens)
    longest = min(most, 512) if max_length is None else require_count(operator, "max_length", max_length)
    if longest > most:
        raise ParameterError(
            f"{operator}: max_length={longest:,}, but {files.name!r} reads at most {most:,} tokens of a text"
        )
    characters = (
        CHARACTERS_PER_TOKEN * longest if max_chars is None else require_count(operator, "max_chars", max_chars)
    )
    return TextModel(files, head, longest, characters, batch_tokens, rows, center_chars, answers)


def user_model(
    operator: str, function: Callable[[Sequence[str]], Any], width: int, max_chars: int | None, batch_rows: BatchRows
) -> UserModel:
    """Check how a function of the user is to be called."""
    rows = DEFAULT_ROWS if batch_rows == "auto" else require_count(operator, "model_inference_batch_size", batch_rows)
    characters = None if max_chars is None else require_count(operator, "max_chars", max_chars)
    return UserModel(operator, set_up(operator, function), width, characters, rows)


def price_of(operator: str, model: Any, resources: Resources) -> dict[str, Any]:
    """Return what a kernel states of a model: its bytes, and what a call takes of its worker.

    Raises
    ------
    ParameterError
        If a model that runs on CPUs asks for a GPU.
    """
    price: dict[str, Any] = {"resources": resources}
    if isinstance(model, UserModel):
        held_bytes = model.function.held_bytes if isinstance(model.function, SetUp) else 0
        return price | {"is_users": True, "held_bytes": held_bytes}
    if resources.of_gpu:
        raise ParameterError(
            f"{operator}: this model runs on CPUs, so its resources are cpus=; gpus= and gpu_memory= are for a function that "
            "uses a GPU itself"
        )
    price |= {"held_bytes": model.held_bytes, "libraries": getattr(model, "libraries", {})}
    if isinstance(model, TextModel) and resources.cpus is not None:
        return price | {"fixed_bytes": CALL_BYTES, "resource_bytes": model.batch_bytes}
    return price | {"fixed_bytes": model.call_bytes}


def require_count(operator: str, name: str, value: object) -> int:
    """Return a number that is 1 or more, or raise `ParameterError`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        auto = " or 'auto'" if name == "model_inference_batch_size" else ""
        raise ParameterError(f"{operator}: {name}={value!r} is not a whole number of 1 or more{auto}")
    return value
