# SPDX-License-Identifier: Apache-2.0
"""Pooling of a model's last layer, as its authors specify it in the files of sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from curator_df.errors import CorruptFileError, ParameterError
from curator_df.models.files import AGAIN, ModelFiles, download, read_json, read_object

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
        raise CorruptFileError(f"{folder / MODULES} must hold a list of modules with a type. {AGAIN}")
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    if beyond := [kind for kind in kinds if kind not in APPLIED]:
        raise ParameterError(
            f"{operator}: {files.name!r} has a layer {beyond[0]} after its pooling, which is not supported. Use "
            "pooling='mean' or 'cls' for vectors without it, or pass a function"
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
