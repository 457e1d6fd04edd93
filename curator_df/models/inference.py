# SPDX-License-Identifier: Apache-2.0
"""Run a model on a text column, in a worker: tokenize on the CPU, batch by length, and restore the order of the rows.

A process loads a model once (`memory.process_cache`), on CPUs or on its GPU (`devices`). Tasks of several threads use it
concurrently, each with one thread of torch, so that the model uses no more CPUs than there are worker threads. If less was
requested (`memory.resources`), texts are tokenized while other tasks use the model.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from curator_df.core.ranges.out_of_memory import is_out_of_memory
from curator_df.errors import CorruptFileError, CuratorError, InputError, ParameterError
from curator_df.extras import missing_extra
from curator_df.memory.process_cache import cached
from curator_df.memory.resources import NO_LIMITS, Resources, admitted, capacity_here
from curator_df.memory.torch_memory import bound_torch
from curator_df.models.batch_size_tuning import SizeTrial
from curator_df.models.batches import BatchCounts, BatchSize, run_batches, windows
from curator_df.models.classifiers.answering import answered, prompt_tokens
from curator_df.models.classifiers.custom_head import OwnLayers, load_own_layers
from curator_df.models.classifiers.lora import ADAPTER_CONFIG, ADAPTER_WEIGHTS, Adapted, add_adapter, load_layers
from curator_df.models.devices import computing_in, open_device, peaks
from curator_df.models.files import (
    AGAIN,
    WEIGHTS,
    ModelFiles,
    local_folder,
    read_object,
    require_tokenizer,
    require_whole,
)
from curator_df.models.gte_models import KIND, PUBLISHED_AS, gte_config
from curator_df.models.text_model import TextModel


class Weights:
    """Weights of a model in memory, or in that of this process's GPU."""

    module: Any
    """Model of transformers."""
    matrix: Any = None
    """Matrix of the layers of a classifier, combined: shape (numbers, width)."""
    bias: Any = None
    """Bias of the layers of a classifier, combined: shape (numbers,)."""
    judge: Any = None
    """Function that applies the layers on a language model's last token."""

    def __init__(self, model: TextModel) -> None:
        import torch
        import transformers

        self._model, self._device = model, model.device
        folder = model.files.local_folder()
        given = {"local_files_only": True, "trust_remote_code": model.files.runs_code}
        open_device(torch, model.files.name, model.device, model.numbers)
        with quiet(transformers), loading(f"the model {model.files.name!r}", folder):
            if model.files.adapted is not None:
                made = self._with_adapter(model.files.adapted, transformers, torch, folder, given)
            elif model.files.layers is None:
                made = self._whole(transformers, torch, folder, given)
            else:
                made = self._with_own_layers(model.files.layers, folder)
        self.module = made.eval().to(model.device)

    def close(self) -> None:
        """Release the weights, and the GPU memory that torch caches."""
        self.module = self.matrix = self.bias = self.judge = None
        if self._device == "cuda":
            import torch

            torch.cuda.empty_cache()

    def _whole(self, transformers: Any, torch: Any, folder: str, given: dict[str, Any]) -> Any:
        files = self._model.files
        if files.kind not in transformers.models.auto.configuration_auto.CONFIG_MAPPING and not files.runs_code:
            raise ParameterError(
                f"the model {files.name!r} is of the kind {files.kind!r}, which transformers {transformers.__version__} does "
                "not have. If it comes with code that you trust, use cdf.model(..., trust_remote_code=True). Every worker "
                "then runs that code"
            )
        given |= _config_of(transformers, files, folder)
        classifies = self._model.head == "classes"
        kind = transformers.AutoModelForSequenceClassification if classifies else transformers.AutoModel
        made, report = kind.from_pretrained(folder, **_LOADING, dtype=torch.float32, **given)
        self._require_sizes(report["mismatched_keys"])
        self._require_all(sorted(name for name in report["missing_keys"] if "pooler" not in name or classifies))
        made.config.use_cache = False  # a decoder's KV cache is not in the plan, and nothing is generated
        return made

    def _with_adapter(self, adapted: Adapted, transformers: Any, torch: Any, folder: str, given: dict[str, Any]) -> Any:
        kind = transformers.AutoModel if adapted.layers is not None else transformers.AutoModelForCausalLM
        made, report = kind.from_pretrained(folder, **_LOADING, dtype=torch.float32, **given)
        self._require_sizes(report["mismatched_keys"])
        self._require_all(sorted(report["missing_keys"]))
        between = local_folder(adapted.adapter)
        with loading(f"the adapter {adapted.adapter.name!r}", between, f"{ADAPTER_CONFIG} and {ADAPTER_WEIGHTS}"):
            add_adapter(made.base_model, Path(between, ADAPTER_WEIGHTS), adapted.scale)
        if adapted.layers is not None:
            made.config.use_cache = False
            on_top = local_folder(adapted.layers)
            with loading(f"the layers {adapted.layers.name!r}", on_top, "the weights"):
                self.judge = load_layers(sorted(Path(on_top).glob(WEIGHTS)), self._device)
        # A language model is called for each token: its weights are converted to bfloat16 once, not each time.
        return made.to(torch.bfloat16) if self._model.numbers == "bfloat16" else made

    def _with_own_layers(self, layers: OwnLayers, folder: str) -> Any:
        files = sorted(Path(folder).glob(WEIGHTS))
        made, *tensors = load_own_layers(layers, files, self._require_all)
        self.matrix, self.bias = (part.to(self._device) for part in tensors)
        return made

    def _require_sizes(self, mismatched: Collection[tuple[str, Sequence[int], Sequence[int]]]) -> None:
        """Raise for weights of another size than the configuration has, which would be random numbers."""
        if mismatched:
            name, found, wanted = min(mismatched)
            raise InputError(
                f"the weights of the model {self._model.files.name!r} do not belong to its config.json: {name} has the shape "
                f"{tuple(found)}, but by config.json it would be {tuple(wanted)}. {ALL_AGAIN}"
            )

    def _require_all(self, missing: list[str]) -> None:
        """Raise for a model with missing weights, which would be random numbers."""
        if missing:
            listed = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
            purpose = "classes" if self._model.head == "classes" else "embeddings"
            raise ParameterError(
                f"the model {self._model.files.name!r} has no weights for {listed}, so it has no {purpose}. Use another model"
            )


def _config_of(transformers: Any, files: ModelFiles, folder: str) -> dict[str, Any]:
    """Return the configuration of a model that transformers has under another name, as an argument; empty for other models."""
    config = read_object(Path(folder, "config.json"))
    if files.kind != KIND or config.get("model_type") != PUBLISHED_AS:
        return {}
    return {"config": transformers.AutoConfig.for_model(**gte_config(files.name, config))}


@contextlib.contextmanager
def loading(what: str, folder: str, files: str = "config.json and the weights") -> Iterator[None]:
    """Raise an error with the file, or the folder, if transformers or safetensors cannot read a file of it."""
    try:
        yield
    except Exception as exc:
        if isinstance(exc, CuratorError) or is_out_of_memory(exc):
            raise
        try:
            require_whole(folder)
        except CorruptFileError as damage:
            raise damage from exc
        reason = str(exc).strip().split("\n", maxsplit=1)[0]
        if type(exc).__name__ == "SafetensorError":  # of a file whose header says nothing of it
            raise CorruptFileError(
                f"{what} in {folder!r} could not be loaded, as its weights are damaged: {reason.rstrip('. ')}. {AGAIN}"
            ) from exc
        raise InputError(
            f"{what} in {folder!r} could not be loaded: {type(exc).__name__}: {reason}. Check that {files} are those that "
            "save_pretrained() of transformers wrote, or download the folder again"
        ) from exc


def _tokenizer_of(transformers: Any, files: ModelFiles, folder: str) -> Any:
    with loading(f"the tokenizer of the model {files.name!r}", folder, "tokenizer.json and tokenizer_config.json"):
        try:
            given = _config_of(transformers, files, folder)
            return transformers.AutoTokenizer.from_pretrained(
                folder, use_fast=True, local_files_only=True, trust_remote_code=files.runs_code, **given
            )
        except Exception as exc:  # transformers raises errors of many types
            path = Path(folder, "tokenizer.json")
            if is_out_of_memory(exc):
                raise
            if not path.is_file():
                reason = str(exc).strip().split("\n", maxsplit=1)[0].rstrip(" :")
                raise InputError(
                    f"the model {files.name!r} has no {path}, and transformers could not make a tokenizer from its other files: "
                    f"{type(exc).__name__}: {reason}. Copy or download tokenizer.json, too"
                ) from exc
            require_tokenizer(path)
            raise


@contextlib.contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Keep progress bars and advice about loading out of a worker's output."""
    said = transformers.utils.logging
    before, had_bar = said.get_verbosity(), said.is_progress_bar_enabled()
    said.set_verbosity_error()
    said.disable_progress_bar()
    try:
        yield
    finally:
        said.set_verbosity(before)
        if had_bar:
            said.enable_progress_bar()


WINDOW_CHARACTERS = 2_000_000
"""Characters of the texts whose tokens are held in each step (as 4 bytes each), and which are sorted by length together."""
ENCODE_CHARACTERS = 100_000
"""Characters of the texts passed to the tokenizer in each call: it needs about 100 bytes for a token."""
TEXT_CHARACTERS = 64
"""Characters added to each text for its cost: the tokenizer needs about 1,400 bytes for a text of any length."""
MOST_GROWTH = 16
"""Maximum multiple of ``max_chars`` read from a text that made fewer tokens than the model reads, for example because of white
space."""
PROBES = ("a", "a text of some words")
"""Texts that are read alone and in a batch, to check whether a model reads them alike."""
MOST_DIFFERENCE = {"float32": 1e-3, "bfloat16": 0.25}
"""Maximum difference between the two, as a fraction of the largest number: more than rounding causes."""


_LOADING = {"use_safetensors": True, "output_loading_info": True, "ignore_mismatched_sizes": True}
"""Parameters of ``from_pretrained``. Weights of another size are reported, and are then an error that names them."""
ALL_AGAIN = "Copy or download all files of the model again, from one place"

Keep = Callable[[npt.NDArray[np.int64], npt.NDArray[Any]], None]
"""Function of the positions of some rows, and of their results: float32 of shape (rows, width), or `answering.answered`."""


class Runs(Protocol):
    """Model that needs no loading here."""

    def run(self, texts: pa.ChunkedArray, keep: Keep) -> BatchCounts:
        """Pass all non-null texts to the model, and the results to ``keep`` with their positions."""


class LoadedModel:
    """Model in this process, for steps with the same resources: with its own tokenizer and batch sizes."""

    def __init__(self, model: TextModel, resources: Resources = NO_LIMITS) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        try:
            import torch
            import transformers
        except ImportError as exc:
            raise missing_extra(f"the model {model.files.name!r}", exc.name or "torch", "models") from exc
        self.model = model
        with quiet(transformers), _threads(torch, 1):
            self._weights = cached(model.weights, lambda: Weights(model))
            folder = model.files.local_folder()
            self._tokenizer = _tokenizer_of(transformers, model.files, folder)
            self._padding = self._padding_token()
            if model.answers is None:
                self._require_no_neighbours()
        self.size = batch_size(model, resources)

    def run(self, texts: pa.ChunkedArray, keep: Keep, resources: Resources = NO_LIMITS) -> BatchCounts:
        """Pass all non-null texts to the model, and the results to ``keep`` with their positions."""
        import torch

        counts = BatchCounts(computed_in=self.model.numbers)
        characters = pc.fill_null(pc.utf8_length(texts), 0).to_numpy()
        fixed_characters = self.model.prompt_characters + TEXT_CHARACTERS
        for rows in windows(np.minimum(characters, self.model.max_chars) + fixed_characters, WINDOW_CHARACTERS):
            window = texts.slice(rows.start, rows.stop - rows.start)
            places = np.flatnonzero(window.is_valid().to_numpy()) + rows.start
            if self.model.center_chars is not None:
                window = middles(window, self.model.center_chars)
            # Split before nulls are removed, which copies.
            tokens, offsets = self._encode(pc.utf8_slice_codeunits(window, 0, self.model.max_chars).drop_null())
            if self.model.reads_on:
                tokens, offsets = self._with_more(window.drop_null(), tokens, offsets)

            def forward(chosen: npt.NDArray[np.int64]) -> None:
                keep(places[chosen], self._forward(tokens, offsets, chosen))  # noqa: B023 - called only in this iteration

            with admitted(resources) as waited, _threads(torch, resources.cpus or 1):
                counts.waited_milliseconds += waited
                run_batches(np.diff(offsets), self.size, forward, counts)
        return counts

    def _padding_token(self) -> int:
        """Return the padding token, which must be the model's own.

        A decoder with classes judges by the last token that is not padding, and models such as RoBERTa count positions without
        it: with another token the output for a text would depend on its batch.
        """
        of_tokenizer = self._tokenizer.pad_token_id
        if self.model.files.adapted is not None:  # it gets the position of the last token
            return 0 if of_tokenizer is None else int(of_tokenizer)
        config = self._weights.module.config.get_text_config()
        known = getattr(config, "pad_token_id", None)
        if known is None or not 0 <= known < config.vocab_size:
            known = config.pad_token_id = of_tokenizer
        if known is None and self.model.head == "classes" and self.model.files.layers is None:
            raise ParameterError(
                f"the model {self.model.files.name!r} has no padding token in its configuration or tokenizer, so the "
                "classes of texts would depend on the batch. Set the one with which it was trained as pad_token in "
                "its tokenizer_config.json, or as pad_token_id in its config.json"
            )
        return 0 if known is None else int(known)

    def _require_no_neighbours(self) -> None:
        """Raise for a model whose output for a text depends on its batch, because it reads padding."""
        tokens, offsets = self._encode(pa.chunked_array([pa.array(PROBES, pa.large_string())]))
        alone, batched = (
            self._forward(tokens, offsets, np.array([0]))[0],
            self._forward(tokens, offsets, np.arange(2))[0],
        )
        if np.abs(alone - batched).max() > MOST_DIFFERENCE[self.model.numbers] * max(np.abs(alone).max(), 1.0):
            raise ParameterError(
                f"the model {self.model.files.name!r}, of the kind {self.model.files.kind!r}, changes its output for a text if "
                "its batch has a longer one, so results would depend on blocks and batches. Use a model of another kind, or a "
                "function that passes single texts to it"
            )

    def _encode(self, texts: pa.ChunkedArray) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Return the tokens of all texts one after the other, and the start of each text."""
        pieces, lengths = [np.empty(0, np.int32)], [np.zeros(1, np.int64)]
        characters = pc.utf8_length(texts).to_numpy() + self.model.prompt_characters + TEXT_CHARACTERS
        for rows in windows(characters, ENCODE_CHARACTERS):
            encoded = self._tokens_of(texts.slice(rows.start, rows.stop - rows.start).to_pylist())
            # A text without tokens gets one padding token, so that there is something to read.
            whole = [tokens or [self._padding] for tokens in encoded]
            lengths.append(np.array([len(tokens) for tokens in whole], np.int64))
            pieces.append(np.concatenate([np.asarray(tokens, np.int32) for tokens in whole]))
        return np.concatenate(pieces), np.cumsum(np.concatenate(lengths))

    def _with_more(
        self, texts: pa.ChunkedArray, tokens: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Return tokens in which truncated texts with too few tokens are replaced by tokens of more of the text."""
        characters = pc.utf8_length(texts).to_numpy()
        few = np.flatnonzero((characters > self.model.max_chars) & (np.diff(offsets) < self.model.max_tokens))
        if not len(few):
            return tokens, offsets
        pieces = np.split(tokens, offsets[1:-1])
        for row in few.tolist():
            most, end = self.model.max_chars, min(int(characters[row]), MOST_GROWTH * self.model.max_chars)
            while most < end and len(pieces[row]) < self.model.max_tokens:
                most = min(2 * most, end)
                [found] = self._tokens_of([texts[row].as_py()[:most]])
                pieces[row] = np.asarray(found or [self._padding], np.int32)
        return np.concatenate(pieces), np.cumsum([0, *map(len, pieces)])

    def _tokens_of(self, texts: list[str]) -> list[list[int]]:
        if self.model.answers is not None:
            return prompt_tokens(self._tokenizer, texts, self.model.answers, self.model.max_tokens)
        given = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
        length = self.model.max_tokens
        found: list[list[int]] = self._tokenizer(texts, truncation=True, max_length=length, padding=False, **given)[
            "input_ids"
        ]
        return found

    def _forward(
        self, tokens: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64], chosen: npt.NDArray[np.int64]
    ) -> npt.NDArray[Any]:
        import torch

        starts, lengths = offsets[chosen], offsets[chosen + 1] - offsets[chosen]
        is_token = np.arange(int(lengths.max())) < lengths[:, None]
        if self.model.answers is not None:
            is_token = np.ascontiguousarray(is_token[:, ::-1])  # padding on the left: an answer continues its prompt
        padded = np.full(is_token.shape, self._padding, dtype=np.int64)
        padded[is_token] = np.concatenate([tokens[start : start + n] for start, n in zip(starts, lengths, strict=True)])
        self._require_known(padded)
        device, numbers = self.model.device, self.model.numbers
        with torch.inference_mode():
            with computing_in(torch, device, numbers):
                if self.model.answers is not None:
                    return answered(self._weights.module, self._tokenizer, padded, is_token, self.model.answers)
                mask = torch.from_numpy(is_token.astype(np.int64)).to(device)
                made = self._weights.module(input_ids=torch.from_numpy(padded).to(device), attention_mask=mask)
            result: npt.NDArray[Any] = self._pooled(made, mask).float().cpu().numpy()
        return result

    def _require_known(self, tokens: npt.NDArray[np.int64]) -> None:
        """Raise for a token that the model does not have, which is an error without a name or ends the use of a GPU."""
        known, largest = self._weights.module.config.get_text_config().vocab_size, int(tokens.max())
        if largest >= known:
            raise InputError(
                f"the tokenizer of the model {self.model.files.name!r} does not belong to its weights: a text has the token "
                f"{largest:,}, but vocab_size in config.json is {known:,}. {ALL_AGAIN}"
            )

    def _pooled(self, made: Any, mask: Any) -> Any:
        layers = self.model.files.layers
        if self.model.files.adapted is not None:
            last = made.last_hidden_state[range(len(mask)), mask.sum(1) - 1]
            return self._weights.judge(last)
        if self.model.head == "classes" and layers is None:
            return made.logits
        layer, pooling = made.last_hidden_state.float(), self.model.head if layers is None else layers.pooling
        if pooling == "cls":
            pooled = layer[:, 0]
        else:
            weights = mask.unsqueeze(-1).to(layer.dtype)
            pooled = (layer * weights).sum(1) / weights.sum(1)
        matrix, bias = self._weights.matrix, self._weights.bias
        return pooled if matrix is None else pooled @ matrix.T + bias


def middles(texts: pa.ChunkedArray, reach: int) -> pa.ChunkedArray:
    """Return the characters of texts within ``reach`` characters of the middle.

    Examples
    --------
    >>> middles(pa.chunked_array([["abcd", "abcdefg", None]]), 2).to_pylist()
    ['abcd', 'bcde', None]
    """
    lengths = pc.fill_null(pc.utf8_length(texts), 0).to_numpy()
    chunks, after = [], 0
    for row in np.flatnonzero(lengths > 2 * reach).tolist():
        start = int(lengths[row]) // 2 - reach
        middle = pc.utf8_slice_codeunits(texts.slice(row, 1), start, start + 2 * reach)
        chunks += [*texts.slice(after, row - after).chunks, *middle.chunks]
        after = row + 1
    return pa.chunked_array([*chunks, *texts.slice(after).chunks], texts.type)


def batch_size(model: TextModel, resources: Resources) -> BatchSize:
    """Return the maximum tokens of a batch: the planned number, or what fits on a GPU; with a trial for ``"auto"``."""
    capacity = capacity_here()
    most = model.device_tokens(0 if capacity is None else capacity.device_share(resources))
    trial = None if model.batch_rows is not None else SizeTrial.below(most, model.longest_tokens)
    # The CPU time of the one computing thread equals the wall time without other work on the machine.
    alone = model.device == "cpu" and (resources.cpus or 1) == 1
    return BatchSize(most, model.batch_rows, model.row_tokens, trial, time.thread_time if alone else time.perf_counter)


def run_model(model: Runs | TextModel, texts: pa.ChunkedArray, keep: Keep, resources: Resources) -> BatchCounts:
    """Run a model on texts; it is loaded first if this process does not hold it yet."""
    if isinstance(model, TextModel):
        # The memory of a call determines batch sizes; the weights are nevertheless held once.
        asked = time.perf_counter()
        loaded = cached((model, resources), lambda: LoadedModel(model, resources))
        waited = round(1000 * (time.perf_counter() - asked))
        counts = loaded.run(texts, keep, resources)
        counts.waited_milliseconds += waited
        counts.peaks = peaks(model.device)
        return counts
    with admitted(resources) as waited:
        if resources.of_gpu:  # a function that uses a GPU itself
            bound_torch()
        counts = model.run(texts, keep)
    counts.waited_milliseconds, counts.peaks = waited, peaks("cuda" if resources.of_gpu else "cpu")
    return counts


@contextlib.contextmanager
def _threads(torch: Any, count: int) -> Iterator[None]:
    """Let torch use this thread and up to ``count`` threads in total."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
