# SPDX-License-Identifier: Apache-2.0
"""Model with its input settings, as a value that is sent to workers, and the memory that it needs there."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from curator_df.core.ranges.price import Price
from curator_df.core.ranges.set_up import SetUp, set_up
from curator_df.errors import ParameterError
from curator_df.memory.resources import NO_LIMITS, Resources
from curator_df.models.callables import DEFAULT_ROWS, UserModel
from curator_df.models.classifiers.generative_classifier import Answers
from curator_df.models.devices import Device, Numbers, chosen_numbers
from curator_df.models.files import ModelFiles, find_adapted, find_answering, find_model
from curator_df.models.model import Model, require_resources

_EAGER_KINDS = (
    "bros",
    "canine",
    "convbert",
    "doge",  # has SDPA, with a mask for each head
    "flint",
    "gemma2",
    "git",
    "gpt_oss",
    "granite_swa",
    "granitemoe_swa",
    "hy_v4",
    "hy_v4_vl_text",
    "ibert",
    "layoutlmv2",
    "luke",
    "lxmert",
    "markuplm",
    "megatron-bert",
    "mimo_v2_flash",
    "mpnet",
    "mra",
    "nystromformer",
    "openai_privacy_filter",
    "rembert",
    "roformer",
    "splinter",
    "squeezebert",
    "tapas",
    "tvp",
    "vaultgemma",
    "vilt",
    "visual_bert",
    "vits",
)
EAGER_COPIES: Mapping[str, int] = {**dict.fromkeys(_EAGER_KINDS, 3), "deberta": 5, "deberta-v2": 5, "lilt": 7}
"""Kinds that hold a matrix of attention for each head, with the number of such matrices at once. Three are the scores, the
probabilities, and the bias of positions (MPNet) or the probabilities of the previous layer (RoFormer, Megatron-BERT,
RemBERT); others hold two. LiLT has scores of words and of positions. DeBERTa has one more for all distances between tokens
(benchmarks/model_memory.py)."""
MASK_NUMBERS = 2
"""Numbers for each token and each other token of its text with SDPA, independent of the number of heads."""


def score_numbers(kind: str, heads: int, length: int, distances: int) -> int:
    """Return how many numbers attention holds for each token of a batch of texts of ``length`` tokens.

    Examples
    --------
    >>> score_numbers("bert", 12, 512, 0), score_numbers("mpnet", 12, 512, 0)
    (1024, 18432)
    """
    copies = EAGER_COPIES.get(kind)
    return MASK_NUMBERS * length if copies is None else heads * (copies * length + distances)


Head = Literal["mean", "cls", "classes"]
"""Use of the last layer: the mean of its tokens, its first token, or the model's classes."""
CHARACTERS_PER_TOKEN = 16
"""Default number of characters read from a text for each token that the model reads."""
DEFAULT_BATCH_TOKENS = 2048
RUNTIME_BYTES = 330_000_000
"""Bytes that a process holds once torch and transformers are imported and a model has run (benchmarks/model_memory.py)."""
DEVICE_RUNTIME_BYTES = 1_500_000_000
"""Bytes on the host with the build of torch for CUDA and a context on a GPU. Assumed: kernels are loaded when they are used."""
LOADING_FACTOR = 2
"""Number of copies of the weights in memory while a model is loaded: the file, and the tensors."""
CALL_BYTES = 32_000_000
"""Bytes that a call holds for any model: texts and tokens of a window, and buffers of matrix products."""
DISTANCE_COPIES = 2
"""Vectors of each distance that a DeBERTa makes for each document of a batch in transformers: those of queries and those of
keys. 128 documents of 16 tokens took 486 MB in DeBERTa v3 base, and four of 512 tokens 308 MB."""
KEPT_COPIES = 2
"""Copies of the KV cache of a language model: it is copied for every new token, and freed memory does not always fit the next
copy. With one copy 134 MB were seen where 127 MB were planned, late in a long process."""
CHOICE_COPIES = 3
"""Numbers for each token of the vocabulary and each document when a language model chooses the next token."""
CAST_COPIES = 2
"""Copies of the largest matrix as bfloat16: the matrix, and its layout for the library of matrix products."""


@dataclass(frozen=True)
class TextModel:
    """Model with its settings."""

    files: ModelFiles
    """Files and sizes of the model."""
    head: Head
    """Use of its last layer."""
    max_tokens: int
    """Maximum number of tokens of a text that it reads."""
    max_chars: int
    """Maximum number of characters of a text that are tokenized."""
    batch_tokens: int = field(metadata={"identity": False})
    """Maximum number of padded tokens of a batch."""
    batch_rows: int | None = field(metadata={"identity": False})
    """Maximum number of documents of a batch."""
    center_chars: int | None = None
    """Characters read on either side of a text's middle; None for the text from its beginning."""
    answers: Answers | None = None
    """Prompt and answers of a generative classifier; its token limits are those of the whole prompt."""
    reads_on: bool = False
    """Whether more is read of a text of which ``max_chars`` characters make fewer than ``max_tokens`` tokens."""
    numbers: Numbers = "float32"
    """Number format of the computation."""
    device: Device = field(default="cpu", metadata={"identity": False})
    """Where."""
    fills_device: bool = field(default=False, metadata={"identity": False})
    """Whether a batch may have as many tokens as fit on a GPU, regardless of ``batch_tokens``."""

    @property
    def held_bytes(self) -> int:
        """Bytes that a worker holds once: the libraries, and the weights while they are loaded."""
        return self._runtime_bytes + LOADING_FACTOR * max(self.weight_bytes, self.files.weight_bytes)

    @property
    def libraries(self) -> dict[str, int]:
        """Part of these bytes that stays after the run, by library."""
        return {"torch": self._runtime_bytes}

    @property
    def _runtime_bytes(self) -> int:
        return DEVICE_RUNTIME_BYTES if self.device == "cuda" else RUNTIME_BYTES

    @property
    def weights(self) -> tuple[str, ...]:
        """Identity of the weights in a worker: steps with the same identity share them."""
        numbers = "" if self.files.adapted is None else self.numbers
        kind = "classes" if self.head == "classes" and self.answers is None else "answers" if self.answers else "layers"
        return ("weights", self.files.digest, kind, numbers, self.device)

    @property
    def shared(self) -> dict[str, int]:
        """Part of these bytes that other steps with these weights share."""
        return {" ".join(self.weights): self.held_bytes - self._runtime_bytes}

    @property
    def call_bytes(self) -> int:
        """Bytes that each task holds while the model runs."""
        return CALL_BYTES + self.batch_bytes

    @property
    def batch_bytes(self) -> int:
        """Part of these bytes for the numbers of one layer for all tokens of a batch, and for weights converted to bfloat16."""
        return max(self.batch_tokens, self.longest_tokens) * self._token_bytes + self._cast_bytes

    @property
    def longest_tokens(self) -> int:
        """Size of the longest document in tokens: a batch has room for at least one."""
        return self.max_tokens + self.row_tokens

    @property
    def least_device_bytes(self) -> int:
        """Bytes that a GPU must have: the weights, and a batch of one long document."""
        return self.weight_bytes + CALL_BYTES + self.longest_tokens * self._token_bytes + self._cast_bytes

    def device_tokens(self, device_bytes: int) -> int:
        """Return the maximum padded tokens of a batch in ``device_bytes`` of a GPU."""
        if not self.fills_device or not device_bytes:
            return self.batch_tokens
        return self.fitting_tokens(device_bytes - self.weight_bytes) or self.batch_tokens

    @property
    def computes(self) -> str:
        """Description for `explain`; empty for float32 on CPUs."""
        where = "on the worker's GPU" if self.device == "cuda" else "on CPUs"
        return "" if (self.device, self.numbers) == ("cpu", "float32") else f"computes in {self.numbers} {where}"

    @property
    def row_tokens(self) -> int:
        """Fixed cost of a document of any length, in tokens."""
        numbers = DISTANCE_COPIES * self.files.distances * self.files.hidden + CHOICE_COPIES * self.files.vocabulary
        return -(-4 * numbers // self._token_bytes) + (0 if self.answers is None else self.answers.new_tokens)

    @property
    def prompt_characters(self) -> int:
        """Characters tokenized in addition to those of each text."""
        return 0 if self.answers is None else len(self.answers.before) + len(self.answers.after)

    @property
    def weight_bytes(self) -> int:
        """Size of the weights as float32."""
        return 4 * self.files.parameters

    @property
    def _cast_bytes(self) -> int:
        """Bytes of the largest matrix, of which only one is converted at once."""
        return 0 if self.numbers == "float32" else CAST_COPIES * 2 * self.files.hidden * self.files.inner

    @property
    def _token_bytes(self) -> int:
        files = self.files
        scores = score_numbers(files.kind, files.heads, self.max_tokens, files.distances)
        return 4 * (
            4 * self.files.hidden
            + self.files.inner_copies * self.files.inner
            + scores
            + KEPT_COPIES * self.files.kept_numbers
        )

    def fitting_tokens(self, call_bytes: int) -> int:
        """Return the maximum padded tokens of a batch for which a call needs at most ``call_bytes``; 0 if none fits."""
        tokens = max((call_bytes - CALL_BYTES - self._cast_bytes) // self._token_bytes, 0)
        return tokens if tokens >= self.longest_tokens else 0


def text_model(
    operator: str,
    model: Model,
    *,
    head: Head,
    center_chars: int | None = None,
    adapter: tuple[str, str | None] | None = None,
    answers: Answers | None = None,
    base_revision: str | None = None,
) -> TextModel:
    """Find a model and check its settings; see `find_model` for errors."""
    name, max_tokens, max_chars, resources = model.model, model.max_tokens, model.max_chars, model.resources
    device: Device = "cuda" if resources is not None and resources.of_gpu else "cpu"
    numbers = chosen_numbers(operator, model.compute_dtype, device)
    if model.trust_remote_code and (answers is not None or adapter is not None):
        raise ParameterError(
            f"{operator}: trust_remote_code does not apply to {name!r}, which comes without code. Leave it out"
        )
    revision, runs_code = model.revision, model.trust_remote_code
    if answers is not None:
        files = find_answering(operator, name, revision, base_revision)
    elif adapter is not None:
        files = find_adapted(operator, name, adapter[0], revision, adapter[1], base_revision)
    else:
        files = find_model(operator, name, revision, trust_remote_code=runs_code, base_revision=base_revision)
    if files.layers is not None and head != "classes":
        raise ParameterError(
            f"{operator}: {files.name!r} is a classifier with its own layers and has no embeddings. Use it with add_class"
        )
    most = files.longest - (0 if answers is None else answers.new_tokens)
    longest = min(most, 512) if max_tokens is None else max_tokens
    if longest > most:
        raise ParameterError(
            f"{operator}: max_tokens={longest:,} is too large, because {files.name!r} reads at most {most:,} tokens of a "
            "text. Use a smaller max_tokens=, or leave it out"
        )
    return TextModel(
        files,
        head,
        longest,
        CHARACTERS_PER_TOKEN * longest if max_chars is None else max_chars,
        DEFAULT_BATCH_TOKENS if model.max_batch_tokens is None else model.max_batch_tokens,
        None if model.model_inference_batch_size == "auto" else model.model_inference_batch_size,
        center_chars,
        answers,
        reads_on=max_chars is None,
        numbers=numbers,
        device=device,
        fills_device=device == "cuda" and model.max_batch_tokens is None,
    )


def user_model(operator: str, model: Model, width: int) -> UserModel:
    """Return a user's function with its settings, after checking them."""
    refuse_settings(operator, model)
    made = set_up(operator, model.model)
    if isinstance(made, SetUp) and made.resources != NO_LIMITS:
        raise ParameterError(
            f"{operator}: {made.name} has an attribute resources, which is not used for a model. Remove it, and pass "
            "cdf.model(..., resources=...) instead"
        )
    rows = DEFAULT_ROWS if model.model_inference_batch_size == "auto" else model.model_inference_batch_size
    return UserModel(operator, made, width, model.max_chars, rows)


def refuse_settings(operator: str, model: Model) -> None:
    """Raise `ParameterError` if a setting is given that only transformers models have."""
    for name in ("max_tokens", "max_batch_tokens", "revision", "compute_dtype", "trust_remote_code"):
        value = getattr(model, name)
        if value not in (None, False, "auto"):
            raise ParameterError(
                f"{operator}: {name}={value!r} applies only to transformers models, not to this model. Leave {name}= out"
            )


def price_of(operator: str, model: Any, resources: Resources, price: Price) -> Price:
    """Return the price of a kernel with the costs of the model that it calls: its bytes, and the resources of a call.

    Raises
    ------
    ParameterError
        If a GPU is requested for a model that runs only on CPUs, or resources have another type.
    """
    require_resources(operator, resources)
    if isinstance(model, UserModel):
        held_bytes = 0
        if isinstance(model.function, SetUp):
            model.function.require_device_room(operator, resources)
            held_bytes, resources = model.function.held_bytes, model.function.taking(resources)
        elif resources.gpu_memory_bytes is not None:
            resources = dataclasses.replace(resources, least_device_bytes=resources.gpu_memory_bytes)
        return dataclasses.replace(price, held_bytes=held_bytes, resources=resources)
    on_gpu = isinstance(model, TextModel) and model.device == "cuda"
    if resources.of_gpu and not on_gpu:
        raise ParameterError(
            f"{operator}: this model runs on CPUs, so only cpus= applies. Leave gpus= and gpu_memory= out: they are for "
            "transformers models, and for a function that uses a GPU itself"
        )
    price = dataclasses.replace(
        price,
        resources=resources,
        held_bytes=model.held_bytes,
        libraries=getattr(model, "libraries", {}),
        shared=model.shared if isinstance(model, TextModel) else {},
    )
    if on_gpu:
        needed = dataclasses.replace(
            resources,
            least_device_bytes=model.least_device_bytes,
            weights=" ".join(model.weights),
            weight_bytes=model.weight_bytes,
        )
        return dataclasses.replace(price, resources=needed, fixed_bytes=CALL_BYTES)
    if isinstance(model, TextModel) and resources.cpus is not None:
        return dataclasses.replace(price, fixed_bytes=CALL_BYTES, resource_bytes=model.batch_bytes)
    return dataclasses.replace(price, fixed_bytes=model.call_bytes)


def facts_of(model: Any) -> dict[str, Any]:
    """Return what a kernel declares of its model in addition to the price: if it is the user's, how it computes, its kernels."""
    return {
        "is_users": isinstance(model, UserModel),
        "compiled": getattr(model, "compiled", ()),
        "computes": model.computes if isinstance(model, TextModel) else "",
    }
