# SPDX-License-Identifier: Apache-2.0
"""A model as files in the layout of Hugging Face: found by its name, described by its configuration, without torch.

What is read here is ``config.json`` and the headers of the weights, which are safetensors; pickled weights and code that
comes with a model are never loaded.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curator_df.core.arguments import path_of
from curator_df.core.extras import missing_extra
from curator_df.core.sizes import show_count
from curator_df.errors import CorruptFileError, InputError, ParameterError
from curator_df.models.adapted import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    Adapted,
    Place,
    base_and_scale,
    read_config,
    require_layers,
)
from curator_df.models.own_layers import OwnLayers, own_layers

WEIGHTS = "*.safetensors"
INDEX = "model.safetensors.index.json"
"""The file that says which of several files of weights has which tensor."""
PICKLED = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt")
NUMBER_TYPES = frozenset(
    {"auto", "float16", "half", "bfloat16", "float32", "float", "float64", "double", "float8_e4m3fn", "float8_e5m2"}
)
"""Names of types in configurations that torch has."""
TENSOR_TYPES = re.compile(r"BOOL|[UI](?:8|16|32|64)|F(?:16|32|64)|BF16|F4|F6_E[23]M[32]|F8_E\dM\d(?:FNUZ)?|C64")
"""Names of types in the headers of safetensors."""
READ_FILES = ("*.json", "*.txt", "*.model", WEIGHTS)
"""What a model needs: its configuration, its tokenizer, its weights."""
CODE = "*.py"
"""And code of its own, where the user trusts it."""
AGAIN = "Copy or download the file again"
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
UNSTEADY_KINDS = frozenset({"big_bird", "reformer", "yoso"})
"""Kinds that choose by chance or by the length of a batch what is compared with what: a text has other numbers each time."""
WINDOW_KINDS = frozenset({"led", "longformer"})
"""Kinds that pad every text to a window: 128 texts of 16 tokens took 7,130 MB in Longformer base, where 124 MB were planned."""
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""Names of the number of experts in configurations. Two layers of Qwen3-MoE took 150 MB in a batch, not the planned 57 MB."""
OFFSET_POSITIONS = frozenset(
    {
        *("camembert", "data2vec-text", "esm", "ibert", "lilt", "luke", "markuplm", "mpnet", "roberta"),
        *("roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod"),
    }
)
"""Kinds of models whose first positions are those of padding: they count from the padding token's number on."""
MOST_POSITIONS = 1 << 40
MOST_TOKENS = 4096
"""Of a text, for a model that has no limit of its own and whose tokenizer names none."""
_HIDDEN = ("hidden_size", "dim", "d_model")
_INNER = ("intermediate_size", "hidden_dim", "ffn_dim")
_HEADS = ("num_attention_heads", "n_heads")


@dataclass(frozen=True)
class ModelFiles:
    """A model that was found."""

    name: str = field(metadata={"identity": False})
    """As the user gave it."""
    folder: str = field(metadata={"identity": False})
    """Where the files are."""
    revision: str | None = field(metadata={"identity": False})
    """The commit, of a model of the hub."""
    digest: str
    """BLAKE2b of the files."""
    kind: str
    """``model_type`` of the configuration."""
    hidden: int
    """Width of a token's vector."""
    inner: int
    """Width of the layers between."""
    heads: int
    """Of attention."""
    longest: int
    """Most tokens of a text."""
    parameters: int
    """Numbers in the weights."""
    weight_bytes: int
    """Size of the weights on disk."""
    classes: tuple[str, ...]
    """Names of the classes, in order; where the configuration has none, the two that transformers gives to a classifier."""
    several_classes: bool
    """Whether a text may be of several classes at once."""
    layers: OwnLayers | None = None
    """Those of the model's own, on an encoder that is published elsewhere; None of one that is whole."""
    distances: int = field(default=0, metadata={"identity": False})
    """Of a model that knows distances between tokens: how many it tells apart. It has a vector of each for each document."""
    adapted: Adapted | None = None
    """What is put on a language model, of one that comes so."""
    kept_numbers: int = field(default=0, metadata={"identity": False})
    """Of a language model that answers: the numbers that it keeps of each token for the next ones."""
    vocabulary: int = field(default=0, metadata={"identity": False})
    """And the tokens among which it chooses."""
    runs_code: bool = False
    """Whether code that comes with it runs, which the user trusts."""
    names: tuple[str, ...] = field(default=(), metadata={"identity": False})
    """Of the files."""

    def local_folder(self) -> str:
        """Return the folder on this machine; a model of the hub is downloaded where it is missing, once for a machine."""
        return local_folder(Place(self.name, self.folder, self.revision, self.names), with_code=self.runs_code)


def local_folder(place: Place, *, with_code: bool = False) -> str:
    """Return where files are on this machine; those of the hub are downloaded where they are missing, once for a machine."""
    missing = [name for name in place.files if not os.path.exists(os.path.join(place.folder, name))]
    if os.path.isdir(place.folder) and not missing:
        return place.folder
    if place.revision is None:
        what = f"{missing[0]!r} of the model folder" if os.path.isdir(place.folder) else "the model folder"
        raise InputError(f"{what} {place.folder!r} is not on this machine; put it where all workers see it")
    return _download(place.name, place.revision, _read_files(with_code))


def _read_files(with_code: bool) -> tuple[str, ...]:
    return (*READ_FILES, CODE) if with_code else READ_FILES


def find_adapted(
    operator: str,
    name: str | os.PathLike[str],
    adapter: str | os.PathLike[str],
    revision: str | None = None,
    adapter_revision: str | None = None,
    base_revision: str | None = None,
) -> ModelFiles:
    """Find layers, the adapter of a language model, and that model; see `find_model` for errors."""
    on_top, between = _place(operator, name, revision), _place(operator, adapter, adapter_revision)
    base_name, scale = base_and_scale(operator, between.name, read_config(operator, between))
    base = find_model(operator, base_name, None if os.path.isdir(base_name) else base_revision)
    weights = sorted(Path(on_top.folder).glob(WEIGHTS))
    shapes = {key: shape for path in weights for key, shape in _shapes(path).items()}
    require_layers(operator, on_top.name, shapes, base.hidden)
    pair = [Path(between.folder, file) for file in (ADAPTER_CONFIG, ADAPTER_WEIGHTS)]
    return dataclasses.replace(
        base,
        digest=_digest_with(base, [*pair, *weights]),
        parameters=base.parameters + sum(math.prod(shape) for shape in shapes.values()),
        weight_bytes=base.weight_bytes + sum(path.stat().st_size for path in (*pair, *weights)),
        classes=("score",),
        adapted=Adapted(between, on_top, scale),
    )


def find_answering(
    operator: str, adapter: str | os.PathLike[str], revision: str | None = None, base_revision: str | None = None
) -> ModelFiles:
    """Find the adapter of a language model that answers in words, and that model; see `find_model` for errors."""
    place = _place(operator, adapter, revision)
    base_name, scale = base_and_scale(operator, place.name, read_config(operator, place))
    base = find_model(operator, base_name, None if os.path.isdir(base_name) else base_revision)
    config = read_object(Path(base.folder, "config.json"))
    lacking = [key for key in ("num_hidden_layers", "vocab_size") if not isinstance(config.get(key), int)]
    if lacking:
        raise ParameterError(f"{operator}: the configuration of {base.name!r} does not say its {' and '.join(lacking)}")
    heads = config.get("num_key_value_heads") or base.heads
    width = heads * (config.get("head_dim") or base.hidden // base.heads)
    pair = [Path(place.folder, file) for file in (ADAPTER_CONFIG, ADAPTER_WEIGHTS)]
    return dataclasses.replace(
        base,
        digest=_digest_with(base, pair),
        weight_bytes=base.weight_bytes + sum(path.stat().st_size for path in pair),
        adapted=Adapted(place, None, scale),
        kept_numbers=2 * config["num_hidden_layers"] * width,
        vocabulary=config["vocab_size"],
    )


def _digest_with(base: ModelFiles, files: Sequence[Path]) -> str:
    return hashlib.blake2b(f"{base.digest} {digest_of(files)}".encode(), digest_size=16).hexdigest()


def _place(operator: str, name: str | os.PathLike[str], revision: str | None) -> Place:
    text = path_of(operator, "model", name)
    if os.path.isdir(text):
        return Place(text, os.path.abspath(text), None, _names(text, READ_FILES))
    if not HUB_NAME.fullmatch(text):
        raise InputError(f"{operator}: there is no folder {text!r}, and it is not the id of a model either")
    folder = _download(text, revision)
    return Place(text, folder, os.path.basename(folder), _names(folder, READ_FILES))


def _names(folder: str, patterns: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({path.name for pattern in patterns for path in Path(folder).glob(pattern)}))


def find_model(
    operator: str,
    name: str | os.PathLike[str],
    revision: str | None = None,
    *,
    trust_remote_code: bool = False,
    base_revision: str | None = None,
) -> ModelFiles:
    """Find a model and read what it is.

    Parameters
    ----------
    operator : str
        For errors.
    name : str or path
        A folder, or the id of a model of the Hugging Face hub, which is then downloaded into its cache.
    revision : str, optional
        Commit, tag or branch, of a model of the hub.
    trust_remote_code : bool, default False
        Whether Python code that comes with the model may run; it is then part of what the model is.
    base_revision : str, optional
        The same of the encoder that the model's configuration names, if it does.

    Raises
    ------
    InputError
        If there is no such model, or files of it are missing.
    ParameterError
        If the name is neither, if the weights are not safetensors, or if the model is of no kind that is known.
    """
    text = path_of(operator, "model", name)
    if os.path.isdir(text):
        if revision is not None:
            raise ParameterError(f"{operator}: revision={revision!r} has no meaning for the folder {text!r}")
        return _described(operator, text, os.path.abspath(text), None, trust_remote_code, base_revision)
    if not HUB_NAME.fullmatch(text):
        raise InputError(f"{operator}: there is no folder {text!r}, and it is not the id of a model either")
    folder = _download(text, revision, _read_files(trust_remote_code))
    return _described(operator, text, folder, os.path.basename(folder), trust_remote_code, base_revision)


def _download(name: str, revision: str | None, files: Sequence[str] = READ_FILES) -> str:
    # Sub-folders hold the same model in other formats.
    return download(name, revision, files, ignore_patterns=["*/*"])


def download(name: str, revision: str | None, patterns: Sequence[str], **options: Any) -> str:
    """Return the folder in the cache of the Hugging Face hub with such files of a model, downloaded where they are missing."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as exc:
        needed_by = f"the model {name!r} is not a folder on this machine, and downloading it from the Hugging Face hub"
        raise missing_extra(needed_by, "huggingface_hub", "models") from exc
    try:
        return str(snapshot_download(name, revision=revision, allow_patterns=list(patterns), **options))
    except (OSError, ValueError) as exc:
        at = f" at {revision!r}" if revision else ""
        raise InputError(
            f"the model {name!r}{at} is neither a folder here nor in the cache of the Hugging Face hub, and could not be "
            f"downloaded: {exc}"
        ) from exc


def _described(
    operator: str, name: str, folder: str, revision: str | None, runs_code: bool, base_revision: str | None
) -> ModelFiles:
    names = _names(folder, _read_files(runs_code))
    files = [Path(folder, name) for name in names]
    if "config.json" not in names:
        is_empty = not os.listdir(folder)
        raise InputError(
            f"{operator}: {folder!r} has no config.json, so it holds no model"
            f"{'; the folder is empty' if is_empty else ''}. Give the folder that save_pretrained() of transformers wrote"
        )
    weights = [path for path in files if path.match(WEIGHTS)]
    _require_shards(operator, folder, {path.name for path in weights})
    if not weights:
        pickled = sorted(path.name for pattern in PICKLED for path in Path(folder).glob(pattern))
        raise ParameterError(
            f"{operator}: the model {name!r} has no weights as safetensors, and pickled ones "
            f"{'(' + ', '.join(pickled[:3]) + ') ' if pickled else ''}are not loaded. Convert it with transformers: "
            "model.save_pretrained(folder)"
        )
    if not {"tokenizer.json", "tokenizer_config.json"}.intersection(names):
        raise InputError(f"{operator}: {folder!r} has no tokenizer (tokenizer.json or tokenizer_config.json)")
    config = read_object(Path(folder, "config.json"))
    encoder = _encoder(config, base_revision)
    _require_number_type(operator, folder, config)
    _require_kind(operator, name, encoder)
    sizes: dict[str, Any] = _sizes(operator, name, encoder)
    shapes = {key: shape for path in weights for key, shape in _shapes(path).items()}
    layers = None if encoder is config else own_layers(operator, name, json.dumps(encoder, sort_keys=True), shapes)
    return ModelFiles(
        name,
        folder,
        revision,
        digest=digest_of(files),
        kind=str(encoder.get("model_type", "")),
        **sizes,
        longest=_longest(folder, encoder),
        parameters=sum(math.prod(shape) for shape in shapes.values()),
        weight_bytes=sum(path.stat().st_size for path in weights),
        classes=_classes(folder, config),
        several_classes=config.get("problem_type") == "multi_label_classification",
        layers=layers,
        distances=_distances(encoder),
        runs_code=runs_code,
        names=names,
    )


def _require_kind(operator: str, name: str, config: dict[str, Any]) -> None:
    kind, problem = config.get("model_type"), ""
    experts = next((key for key in EXPERTS if isinstance(config.get(key), int) and config[key] > 1), None)
    if kind in UNSTEADY_KINDS:
        problem = "whose numbers of a text depend on the texts beside it"
    elif kind in WINDOW_KINDS:
        problem = "which pads every text to its window of attention, so a batch of short texts takes many times what is planned"
    elif experts is not None:
        problem = f"and has experts ({experts}={config[experts]}), and what they take in a batch is not known"
    if problem:
        raise ParameterError(
            f"{operator}: the model {name!r} is of the kind {kind!r}, {problem}; use a model of another kind"
        )


def _encoder(config: dict[str, Any], base_revision: str | None) -> dict[str, Any]:
    """Return the configuration of the encoder: the model's own, or that of the one that it names."""
    base = config.get("base_model")
    if not isinstance(base, str) or "model_type" in config:
        return config
    folder = base if os.path.isdir(base) else download(base, base_revision, ["config.json"])
    return read_object(Path(folder, "config.json"))


def _sizes(operator: str, name: str, config: dict[str, Any]) -> dict[str, int]:
    found = {}
    for size, keys in (("hidden", _HIDDEN), ("inner", _INNER), ("heads", _HEADS)):
        value = next((config[key] for key in keys if isinstance(config.get(key), int)), 0)
        if value < 1:
            raise ParameterError(
                f"{operator}: the configuration of {name!r} does not say its {' or '.join(keys)}, without which its memory "
                "cannot be planned; it is not an encoder that is known here"
            )
        found[size] = value
    return found


def _longest(folder: str, config: dict[str, Any]) -> int:
    """Return the most tokens of a text that the model, its tokenizer and its authors allow."""
    limits = [_whole(folder, config, "max_position_embeddings", 512)]
    if config.get("position_biased_input") is False:  # only distances between tokens count
        limits.clear()
    elif config.get("model_type") in OFFSET_POSITIONS:
        limits[0] -= _whole(folder, config, "pad_token_id", 1) + 1
    for file, key in (("tokenizer_config.json", "model_max_length"), ("sentence_bert_config.json", "max_seq_length")):
        path = Path(folder, file)
        if path.is_file() and isinstance(found := read_object(path).get(key), int | float):
            limits.append(int(min(found, MOST_POSITIONS)))
    return min(limits, default=MOST_TOKENS)


def _whole(folder: str, config: dict[str, Any], key: str, default: int) -> int:
    """Return a whole number of a configuration; the default where it has none."""
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise CorruptFileError(
            f"{os.path.join(folder, 'config.json')} has {key}={value!r}, which is not a whole number. {AGAIN}"
        )
    return value


def _distances(config: dict[str, Any]) -> int:
    """Return how many distances between tokens a model of the kind DeBERTa tells apart, in both directions."""
    if not config.get("relative_attention") or not config.get("pos_att_type"):
        return 0
    given = (int(config.get(key) or -1) for key in ("position_buckets", "max_relative_positions"))
    return 2 * next((most for most in given if most > 0), int(config.get("max_position_embeddings", 512)))


def _classes(folder: str, config: dict[str, Any]) -> tuple[str, ...]:
    names: dict[str, str] = config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    if not isinstance(names, dict) or not all(key.isdecimal() for key in names):
        raise CorruptFileError(
            f"{os.path.join(folder, 'config.json')} has an id2label that is not an object from numbers to names. {AGAIN}"
        )
    return tuple(str(names[key]) for key in sorted(names, key=int))


def read_json(path: Path) -> dict[str, Any]:
    """Return what a file of JSON holds; raise `CorruptFileError` if it is none."""
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as exc:
        raise CorruptFileError(f"{path} is no JSON: {exc}. {AGAIN}") from exc
    return found


def read_object(path: Path) -> dict[str, Any]:
    """Return the object that a file of JSON holds; raise `CorruptFileError` if it holds something else."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise CorruptFileError(f"{path} must hold a JSON object, and it holds a {type(found).__name__}. {AGAIN}")
    return found


def _require_number_type(operator: str, folder: str, config: dict[str, Any]) -> None:
    for key in ("dtype", "torch_dtype"):
        value = config.get(key)
        if value is not None and (not isinstance(value, str) or value.removeprefix("torch.") not in NUMBER_TYPES):
            raise ParameterError(
                f"{operator}: {os.path.join(folder, 'config.json')} has {key}={value!r}, which is not a type of numbers. "
                "Write 'float32', 'float16' or 'bfloat16' there"
            )


def _require_shards(operator: str, folder: str, there: set[str]) -> None:
    """Raise `InputError` if the index of the weights names a file that is not in the folder."""
    path = Path(folder, INDEX)
    if not path.is_file():
        return
    places = read_object(path).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise CorruptFileError(f"{path} must have a weight_map from tensors to files. {AGAIN}")
    missing = sorted(set(places.values()) - there)
    if missing:
        listed = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise InputError(
            f"{operator}: {path} names {show_count(len(missing), 'file')} of weights that the folder does not have: {listed}. "
            "Copy or download them again"
        )


def _shapes(path: Path) -> dict[str, list[int]]:
    """Return the shapes of the tensors in a safetensors file, from its header."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = file.read(length) if length < size else b""
    try:
        tensors: dict[str, Any] = json.loads(header)
        tensors.pop("__metadata__", None)
        shapes = {name: [int(number) for number in tensor["shape"]] for name, tensor in tensors.items()}
        stop = max((int(tensor["data_offsets"][1]) for tensor in tensors.values()), default=0)
        odd = {name: tensor["dtype"] for name, tensor in tensors.items() if not TENSOR_TYPES.fullmatch(tensor["dtype"])}
    except (ValueError, RecursionError, AttributeError, KeyError, IndexError, TypeError) as exc:
        raise CorruptFileError(f"{path} is not a safetensors file, or is cut short. {AGAIN}") from exc
    if odd:
        name, kind = next(iter(odd.items()))
        raise CorruptFileError(
            f"{path}: the tensor {name!r} has the type {kind!r}, which safetensors does not have. {AGAIN}"
        )
    if 8 + length + stop != size:
        raise CorruptFileError(
            f"{path} should have {8 + length + stop:,} bytes by its header, and has {size:,}: it is "
            f"{'truncated' if size < 8 + length + stop else 'damaged'}. {AGAIN}"
        )
    return shapes


def digest_of(files: Sequence[Path]) -> str:
    """Return the BLAKE2b of files with their names."""
    digest = hashlib.blake2b(digest_size=16)
    for path in files:
        status = path.stat()
        digest.update(f"{path.name} {_content_digest(path, status.st_size, status.st_mtime_ns)}\n".encode())
    return digest.hexdigest()


@functools.lru_cache(maxsize=256)
def _content_digest(path: Path, size_bytes: int, modified_ns: int) -> str:  # noqa: ARG001 - a changed file has others
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
