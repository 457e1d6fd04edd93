# SPDX-License-Identifier: Apache-2.0
"""Weights of a model as torch modules: a process holds them once, regardless of the number of steps and their use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from curator_df.core.ranges.out_of_memory import is_out_of_memory
from curator_df.errors import CorruptFileError, CuratorError, InputError, ParameterError
from curator_df.models.classifiers.custom_head import OwnLayers, load_own_layers
from curator_df.models.classifiers.lora import ADAPTER_WEIGHTS, Adapted, add_adapter, load_layers
from curator_df.models.devices import open_device
from curator_df.models.files import WEIGHTS, local_folder
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
                f"the model {files.name!r} is of the kind {files.kind!r}, which transformers {transformers.__version__} does not "
                "have. If it comes with code that you trust, use cdf.model(..., trust_remote_code=True), and every worker runs it"
            )
        classifies = self._model.head == "classes"
        kind = transformers.AutoModelForSequenceClassification if classifies else transformers.AutoModel
        made, loading = kind.from_pretrained(
            folder, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **given
        )
        self._require_all(sorted(name for name in loading["missing_keys"] if "pooler" not in name or classifies))
        made.config.use_cache = False  # a decoder's KV cache is not in the plan, and nothing is generated
        return made

    def _with_adapter(self, adapted: Adapted, transformers: Any, torch: Any, folder: str, given: dict[str, Any]) -> Any:
        kind = transformers.AutoModel if adapted.layers is not None else transformers.AutoModelForCausalLM
        made, loading = kind.from_pretrained(
            folder, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **given
        )
        self._require_all(sorted(loading["missing_keys"]))
        add_adapter(made.base_model, Path(local_folder(adapted.adapter), ADAPTER_WEIGHTS), adapted.scale)
        if adapted.layers is not None:
            made.config.use_cache = False
            self.judge = load_layers(sorted(Path(local_folder(adapted.layers)).glob(WEIGHTS)), self._device)
        # A language model is called for each token: its weights are converted to bfloat16 once, not each time.
        return made.to(torch.bfloat16) if self._model.numbers == "bfloat16" else made

    def _with_own_layers(self, layers: OwnLayers, folder: str) -> Any:
        files = sorted(Path(folder).glob(WEIGHTS))
        made, *beside = load_own_layers(layers, files, self._require_all)
        self.matrix, self.bias = (part.to(self._device) for part in beside)
        return made

    def _require_all(self, missing: list[str]) -> None:
        """Raise for a model with missing weights, which would be random numbers."""
        if missing:
            listed = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
            purpose = "classes" if self._model.head == "classes" else "embeddings"
            raise ParameterError(
                f"the model {self._model.files.name!r} has no weights for {listed}, so it has no {purpose}. Use another model"
            )


@contextlib.contextmanager
def loading(what: str, folder: str) -> Iterator[None]:
    """Raise an error with the object and its folder if transformers or safetensors cannot read a file."""
    try:
        yield
    except Exception as exc:
        if isinstance(exc, CuratorError) or is_out_of_memory(exc):
            raise
        said = f"{what} in {folder!r} could not be loaded: {type(exc).__name__}: {exc}"
        if type(exc).__name__ == "SafetensorError":
            raise CorruptFileError(
                f"{said}. A file of its weights is damaged. Copy or download the folder again"
            ) from exc
        raise InputError(
            f"{said}. Check that the folder has all files that save_pretrained() of transformers writes, among them "
            "tokenizer.json, and that they belong together"
        ) from exc


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
