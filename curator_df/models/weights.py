# SPDX-License-Identifier: Apache-2.0
"""The weights of a model as modules of torch: a process holds them once, however many steps use them and in whatever way."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from curator_df.core.ranges.out_of_memory import is_out_of_memory
from curator_df.errors import CorruptFileError, CuratorError, InputError, ParameterError
from curator_df.models.adapted import ADAPTER_WEIGHTS, Adapted, add_adapter, load_layers
from curator_df.models.devices import open_device
from curator_df.models.files import WEIGHTS, local_folder
from curator_df.models.own_layers import OwnLayers, load_own_layers
from curator_df.models.text_model import TextModel


class Weights:
    """A model's weights where they are used: in memory, or in that of this process's GPU."""

    module: Any
    """The model of transformers."""
    matrix: Any = None
    """Of layers of a classifier's own, all as one: shape (numbers, width)."""
    bias: Any = None
    """Of the same, shape (numbers,)."""
    judge: Any = None
    """What layers on a language model's last token make of it."""

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
        """Let go of them; what torch keeps of a GPU for later goes back too."""
        self.module = self.matrix = self.bias = self.judge = None
        if self._device == "cuda":
            import torch

            torch.cuda.empty_cache()

    def _whole(self, transformers: Any, torch: Any, folder: str, given: dict[str, Any]) -> Any:
        files = self._model.files
        if files.kind not in transformers.models.auto.configuration_auto.CONFIG_MAPPING and not files.runs_code:
            raise ParameterError(
                f"the model {files.name!r} is of the kind {files.kind!r}, which transformers {transformers.__version__} does not "
                "have; if it comes with code that you trust, say trust_remote_code=True, and every worker runs it"
            )
        classifies = self._model.head == "classes"
        kind = transformers.AutoModelForSequenceClassification if classifies else transformers.AutoModel
        made, loading = kind.from_pretrained(
            folder, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **given
        )
        self._require_all(sorted(name for name in loading["missing_keys"] if "pooler" not in name or classifies))
        made.config.use_cache = False  # what a decoder would keep to go on with is not in the plan, and nothing goes on
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
        # A language model is asked for token after token: its weights are not made bfloat16 each time, but once.
        return made.to(torch.bfloat16) if self._model.numbers == "bfloat16" else made

    def _with_own_layers(self, layers: OwnLayers, folder: str) -> Any:
        files = sorted(Path(folder).glob(WEIGHTS))
        made, *beside = load_own_layers(layers, files, self._require_all)
        self.matrix, self.bias = (part.to(self._device) for part in beside)
        return made

    def _require_all(self, missing: list[str]) -> None:
        """Refuse a model some of whose weights are not there: they would be random numbers."""
        if missing:
            listed = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
            purpose = "classes" if self._model.head == "classes" else "embeddings"
            raise ParameterError(
                f"the model {self._model.files.name!r} has no weights for {listed}, so it cannot make {purpose}"
            )


@contextlib.contextmanager
def loading(what: str, folder: str) -> Iterator[None]:
    """Raise an error that names what is loaded and its folder where transformers or safetensors cannot read a file in it."""
    try:
        yield
    except Exception as exc:
        if isinstance(exc, CuratorError) or is_out_of_memory(exc):
            raise
        said = f"{what} in {folder!r} could not be loaded: {type(exc).__name__}: {exc}"
        if type(exc).__name__ == "SafetensorError":
            raise CorruptFileError(
                f"{said}. A file of its weights is damaged; copy or download the folder again"
            ) from exc
        raise InputError(
            f"{said}. Check that the folder has all files that save_pretrained() of transformers writes, among them "
            "tokenizer.json, and that they belong together"
        ) from exc


@contextlib.contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Keep bars and advice about loading out of a worker's output."""
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
