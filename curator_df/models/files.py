# SPDX-License-Identifier: Apache-2.0
"""Model files in the layout of Hugging Face: found by name, described by their configuration, without torch.

This module reads ``config.json`` and the headers of the weights, which are safetensors; pickled weights and code that
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
from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curator_df.arguments import did_you_mean_path, path_of
from curator_df.core.ranges.out_of_memory import is_out_of_memory
from curator_df.errors import CorruptFileError, InputError, ParameterError
from curator_df.files.hub import download
from curator_df.files.storage import reading_errors
from curator_df.memory.sizes import show_count
from curator_df.models.classifiers.custom_head import OwnLayers, own_layers
from curator_df.models.classifiers.lora import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    Adapted,
    Place,
    base_and_scale,
    read_config,
    require_layers,
)
from curator_df.models.gte_models import PUBLISHED_AS, gte_config

WEIGHTS = "*.safetensors"
INDEX = "model.safetensors.index.json"
"""File that maps tensors to the files of weights."""
JSON_FILES = frozenset(
    {
        "adapter_config.json",
        "added_tokens.json",
        "chat_template.json",
        "config.json",
        "config_sentence_transformers.json",
        "generation_config.json",
        "modules.json",
        "preprocessor_config.json",
        "processor_config.json",
        "sentence_bert_config.json",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.json",
    }
)
"""JSON files that a model or tokenizer reads, in addition to indexes of weights; a folder may have others."""
INDEXES = ".index.json"
"""End of the names of indexes of weights."""
PICKLED = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt")
NUMBER_TYPES = frozenset(
    {"auto", "float16", "half", "bfloat16", "float32", "float", "float64", "double", "float8_e4m3fn", "float8_e5m2"}
)
"""Names of number types in configurations that torch has."""
TENSOR_TYPES = re.compile(r"BOOL|[UI](?:8|16|32|64)|F(?:16|32|64)|BF16|F4|F6_E[23]M[32]|F8_E\dM\d(?:FNUZ)?|C64")
"""Names of types in the headers of safetensors."""
READ_FILES = ("*.json", "*.txt", "*.model", WEIGHTS)
"""Files that a model needs: its configuration, tokenizer and weights."""
CODE = "*.py"
"""Code that comes with a model, if the user trusts it."""
AGAIN = "Copy or download the file again"
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
UNSTEADY_KINDS = frozenset({"big_bird", "reformer", "yoso"})
"""Kinds whose attention depends on chance or on the length of a batch: a text gets other numbers each time."""
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
GATED = 5
"""Vectors of the inner width for each token in layers with a gate: two projections, the activation, the product, and one that
was freed. Batches of 2,048 tokens took 138 to 186 MB in GTE of the size of gte-base, where 116 MB were planned for two."""
GATED_COPIES: Mapping[str, int] = {"modernbert": 6, "modernbert-decoder": 6}
"""Kinds whose two projections are one matrix. 153 to 188 MB in ModernBERT-large, where 117 MB were planned for two."""
MOST_POSITIONS = 1 << 40
MOST_TOKENS = 4096
"""Default maximum number of tokens of a text, for a model without a limit in its configuration or tokenizer."""
_END_BYTES = 4096
_HIDDEN = ("hidden_size", "dim", "d_model")
_INNER = ("intermediate_size", "hidden_dim", "ffn_dim")
_HEADS = ("num_attention_heads", "n_heads")


@dataclass(frozen=True)
class ModelFiles:
    """Model that was found."""

    name: str = field(metadata={"identity": False})
    """Name as the user gave it."""
    folder: str = field(metadata={"identity": False})
    """Folder of the files."""
    revision: str | None = field(metadata={"identity": False})
    """Commit, for a model of the hub."""
    digest: str
    """Digest (BLAKE2b) of the files."""
    kind: str
    """Kind of the model, ``model_type`` of the configuration."""
    hidden: int
    """Width of a token's vector."""
    inner: int
    """Width of the intermediate layers."""
    heads: int
    """Number of attention heads."""
    longest: int
    """Maximum number of tokens of a text."""
    parameters: int
    """Number of parameters in the weights."""
    weight_bytes: int
    """Size of the weights on disk."""
    classes: tuple[str, ...]
    """Names of the classes, in order; by default the two that transformers gives to a classifier."""
    several_classes: bool
    """Whether a text may have several classes at once."""
    layers: OwnLayers | None = None
    """Layers of the classifier on an encoder that is published elsewhere; None for a complete model."""
    inner_copies: int = field(default=2, metadata={"identity": False})
    """Number of vectors of the width ``inner`` that a layer holds for each token."""
    distances: int = field(default=0, metadata={"identity": False})
    """Number of token distances that the model distinguishes; it has a vector of each for each document. 0 if it uses none."""
    adapted: Adapted | None = None
    """Adapter and layers on a language model; None for other models."""
    kept_numbers: int = field(default=0, metadata={"identity": False})
    """Size of the KV cache per token, in values; 0 if the model does not generate."""
    vocabulary: int = field(default=0, metadata={"identity": False})
    """Vocabulary size; 0 if the model does not generate."""
    runs_code: bool = False
    """Whether code that comes with the model runs, which the user trusts."""
    names: tuple[str, ...] = field(default=(), metadata={"identity": False})
    """Names of the files."""

    def local_folder(self) -> str:
        """Return the folder on this machine; a model of the hub is downloaded if it is missing, once for a machine."""
        return local_folder(Place(self.name, self.folder, self.revision, self.names), with_code=self.runs_code)


def local_folder(place: Place, *, with_code: bool = False) -> str:
    """Return the folder of the files on this machine; files of the hub are downloaded if they are missing, once for a machine."""
    missing = [name for name in place.files if not os.path.exists(os.path.join(place.folder, name))]
    if os.path.isdir(place.folder) and not missing:
        return place.folder
    if place.revision is None:
        what = f"{missing[0]!r} of the model folder" if os.path.isdir(place.folder) else "the model folder"
        raise InputError(
            f"{what} {place.folder!r} is not on this machine. Put it in a folder that all workers can read"
        )
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
    shapes = {key: shape for path in weights for key, shape in tensor_shapes(path).items()}
    tensor_shapes(Path(between.folder, ADAPTER_WEIGHTS))
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
    """Find the adapter of a generative classifier, and its language model; see `find_model` for errors."""
    place = _place(operator, adapter, revision)
    base_name, scale = base_and_scale(operator, place.name, read_config(operator, place))
    tensor_shapes(Path(place.folder, ADAPTER_WEIGHTS))
    base = find_model(operator, base_name, None if os.path.isdir(base_name) else base_revision)
    config = read_object(Path(base.folder, "config.json"))
    lacking = [key for key in ("num_hidden_layers", "vocab_size") if not isinstance(config.get(key), int)]
    if lacking:
        raise ParameterError(
            f"{operator}: the configuration of {base.name!r} lacks {' and '.join(lacking)}, without which the memory that it "
            "needs cannot be estimated. Use a language model whose config.json has it"
        )
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
        raise InputError(
            f"{operator}: {text!r} is neither an existing folder nor the ID of a model, such as 'organization/name'. "
            f"Correct it{did_you_mean_path(text)}"
        )
    folder = _download(text, revision)
    return Place(text, folder, os.path.basename(folder), _names(folder, READ_FILES))


def _names(folder: str, patterns: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({path.name for pattern in patterns for path in Path(folder).glob(pattern) if path.is_file()}))


def _require_targets(operator: str, folder: str, patterns: Sequence[str]) -> None:
    """Raise `InputError` for a link to a file that is gone, as in a cache of the hub whose blobs were deleted."""
    for path in (path for pattern in patterns for path in Path(folder).glob(pattern)):
        if path.is_symlink() and not path.exists():
            raise InputError(
                f"{operator}: {str(path)!r} is a link to {os.readlink(path)!r}, which does not exist, so a file of the model is "
                "missing. Copy or download it again"
            )


def find_model(
    operator: str,
    name: str | os.PathLike[str],
    revision: str | None = None,
    *,
    trust_remote_code: bool = False,
    base_revision: str | None = None,
) -> ModelFiles:
    """Find a model and read its description.

    Parameters
    ----------
    operator : str
        Name of the operator, for errors.
    name : str or path
        A folder, or the id of a model of the Hugging Face hub, which is then downloaded into its cache.
    revision : str, optional
        Commit, tag or branch, of a model of the hub.
    trust_remote_code : bool, default False
        Whether Python code that comes with the model may run; it is then part of the model's digest.
    base_revision : str, optional
        Commit, tag or branch of the encoder that the model's configuration names, if any.

    Raises
    ------
    InputError
        If the model does not exist, or some of its files are missing.
    ParameterError
        If the name is invalid, the weights are not safetensors, or the kind of model is not supported.
    """
    text = path_of(operator, "model", name)
    if os.path.isdir(text):
        if revision is not None:
            raise ParameterError(
                f"{operator}: revision={revision!r} does not apply to the folder {text!r}. Leave it out"
            )
        with reading_errors(text):
            return _described(operator, text, os.path.abspath(text), None, trust_remote_code, base_revision)
    if not HUB_NAME.fullmatch(text):
        raise InputError(
            f"{operator}: {text!r} is neither an existing folder nor the ID of a model, such as 'organization/name'. "
            f"Correct it{did_you_mean_path(text)}"
        )
    folder = _download(text, revision, _read_files(trust_remote_code))
    return _described(operator, text, folder, os.path.basename(folder), trust_remote_code, base_revision)


def _download(name: str, revision: str | None, files: Sequence[str] = READ_FILES) -> str:
    # Subfolders hold the same model in other formats.
    return download(name, revision, files, ignore_patterns=["*/*"])


def _described(
    operator: str, name: str, folder: str, revision: str | None, runs_code: bool, base_revision: str | None
) -> ModelFiles:
    patterns = _read_files(runs_code)
    _require_targets(operator, folder, patterns)
    names = _names(folder, patterns)
    files = [Path(folder, name) for name in names]
    if "config.json" not in names:
        is_empty = not os.listdir(folder)
        raise InputError(
            f"{operator}: {folder!r} has no config.json, so it is not a model"
            f"{'; the folder is empty' if is_empty else ''}. Use a folder that save_pretrained() of transformers wrote"
        )
    weights = [path for path in files if path.match(WEIGHTS)]
    _require_shards(operator, folder, {path.name for path in weights})
    if not weights:
        pickled = sorted(path.name for pattern in PICKLED for path in Path(folder).glob(pattern))
        raise ParameterError(
            f"{operator}: the model {name!r} has no safetensors weights, and pickle files "
            f"{'(' + ', '.join(pickled[:3]) + ') ' if pickled else ''}are not loaded, as they can run code. "
            "Convert it with transformers: model.save_pretrained(folder)"
        )
    if not {"tokenizer.json", "tokenizer_config.json"}.intersection(names):
        raise InputError(
            f"{operator}: {folder!r} has no tokenizer (tokenizer.json or tokenizer_config.json). Use a folder in which the "
            "tokenizer was saved, too, with its save_pretrained()"
        )
    for path in files:
        if is_read(path) and path.name not in ("config.json", "tokenizer_config.json"):  # read below
            require_both_ends(path)
    config = read_object(Path(folder, "config.json"))
    if config.get("model_type") == PUBLISHED_AS and not runs_code:
        config = gte_config(name, config)
    encoder = _encoder(config, base_revision)
    _require_number_type(operator, folder, config)
    _require_kind(operator, name, encoder)
    sizes: dict[str, Any] = _sizes(operator, name, encoder)
    shapes = {key: shape for path in weights for key, shape in tensor_shapes(path).items()}
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
        inner_copies=_inner_copies(str(encoder.get("model_type")), shapes),
        distances=_distances(encoder),
        runs_code=runs_code,
        names=names,
    )


def _require_kind(operator: str, name: str, config: dict[str, Any]) -> None:
    kind, problem = config.get("model_type"), ""
    if kind is not None and not isinstance(kind, str):
        raise ParameterError(
            f"{operator}: the configuration of {name!r} has model_type={kind!r}, which is not a name such as 'bert'. Use a "
            "folder that save_pretrained() of transformers wrote"
        )
    experts = next((key for key in EXPERTS if isinstance(config.get(key), int) and config[key] > 1), None)
    if kind in UNSTEADY_KINDS:
        problem = "whose output for a text depends on the other texts of its batch"
    elif kind in WINDOW_KINDS:
        problem = "which pads every text to its attention window, so a batch of short texts needs many times the planned memory"
    elif experts is not None:
        problem = f"with experts ({experts}={config[experts]}), whose memory in a batch is unknown"
    if problem:
        raise ParameterError(
            f"{operator}: the model {name!r} is of the kind {kind!r}, {problem}. Use a model of another kind"
        )


def _encoder(config: dict[str, Any], base_revision: str | None) -> dict[str, Any]:
    """Return the configuration of the encoder: the model's own, or that of the encoder that it names."""
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
                f"{operator}: the configuration of {name!r} lacks {' or '.join(keys)}, without which the memory that it "
                "needs cannot be estimated. Use an encoder whose config.json has it, or pass a function that runs the model"
            )
        found[size] = value
    return found


def _longest(folder: str, config: dict[str, Any]) -> int:
    """Return the maximum number of tokens of a text that the model, its tokenizer and its authors allow."""
    limits = [_whole(folder, config, "max_position_embeddings", 512)]
    if config.get("position_biased_input") is False:  # the model uses only distances between tokens
        limits.clear()
    elif config.get("model_type") in OFFSET_POSITIONS:
        limits[0] -= _whole(folder, config, "pad_token_id", 1) + 1
    for file, key in (("tokenizer_config.json", "model_max_length"), ("sentence_bert_config.json", "max_seq_length")):
        path = Path(folder, file)
        found = read_object(path).get(key) if path.is_file() else None
        if found is not None:
            if not isinstance(found, int | float) or isinstance(found, bool) or not found >= 1:
                raise CorruptFileError(f"{path} has {key}={found!r}, which is not a number of tokens. {AGAIN}")
            limits.append(int(min(found, MOST_POSITIONS)))
    if min(limits, default=1) < 1:
        raise CorruptFileError(
            f"{os.path.join(folder, 'config.json')} has max_position_embeddings={config.get('max_position_embeddings')!r}, which "
            f"leaves no room for a token. {AGAIN}"
        )
    return min(limits, default=MOST_TOKENS)


def _whole(folder: str, config: dict[str, Any], key: str, default: int) -> int:
    """Return a whole number of a configuration, or the default if it is missing."""
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise CorruptFileError(
            f"{os.path.join(folder, 'config.json')} has {key}={value!r}, which is not a whole number. {AGAIN}"
        )
    return value


def _distances(config: dict[str, Any]) -> int:
    """Return the number of token distances that a model of the kind DeBERTa distinguishes, in both directions."""
    if not config.get("relative_attention") or not config.get("pos_att_type"):
        return 0
    given = (int(config.get(key) or -1) for key in ("position_buckets", "max_relative_positions"))
    return 2 * next((most for most in given if most > 0), int(config.get("max_position_embeddings", 512)))


def _inner_copies(kind: str, tensors: Iterable[str]) -> int:
    return GATED_COPIES.get(kind) or (GATED if any("gate" in name for name in tensors) else 2)


def _classes(folder: str, config: dict[str, Any]) -> tuple[str, ...]:
    names: dict[str, str] = config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    if not isinstance(names, dict) or not all(key.isdecimal() for key in names):
        raise CorruptFileError(
            f"{os.path.join(folder, 'config.json')} has an id2label that does not map the numbers of classes to names. "
            f"{AGAIN}"
        )
    return tuple(str(names[key]) for key in sorted(names, key=int))


def read_json(path: Path) -> dict[str, Any]:
    """Return the contents of a JSON file; raise `CorruptFileError` if it is not JSON."""
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as exc:
        raise CorruptFileError(f"{path} is not JSON: {exc}. {AGAIN}") from exc
    return found


def read_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; raise `CorruptFileError` if it has something else."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise CorruptFileError(f"{path} must have a JSON object, but has a {type(found).__name__}. {AGAIN}")
    return found


def require_both_ends(path: Path) -> None:
    """Raise `CorruptFileError` if a JSON file does not begin and end as an object or a list does; it is not read as a whole."""
    with open(path, "rb") as file:
        begin = file.read(_END_BYTES).removeprefix(BOM_UTF8).lstrip()
        file.seek(max(path.stat().st_size - _END_BYTES, 0))
        end = file.read().rstrip()
    if (begin[:1], end[-1:]) not in ((b"{", b"}"), (b"[", b"]")):
        problem = "is empty" if not begin else "is truncated" if begin[:1] in (b"{", b"[") else "is not JSON"
        raise CorruptFileError(f"{path} {problem}. {AGAIN}")


def is_read(path: Path) -> bool:
    """Return whether a file of a folder is JSON that a model or tokenizer reads."""
    return path.name in JSON_FILES or path.name.endswith(INDEXES)


def require_whole(folder: str) -> None:
    """Raise `CorruptFileError` for the first file of a model folder that cannot be read, for an error of another library."""
    for path in sorted(Path(folder).iterdir()):
        if path.is_file() and is_read(path):
            read_json(path)
        elif path.is_file() and path.match(WEIGHTS):
            tensor_shapes(path)


def require_tokenizer(path: Path) -> Any:
    """Return the tokenizer in a ``tokenizer.json``; raise `CorruptFileError` if the package tokenizers cannot read it."""
    import tokenizers

    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as exc:  # the package raises nothing more specific
        if is_out_of_memory(exc):
            raise
        raise CorruptFileError(
            f"the package tokenizers cannot read {path}: {str(exc).rstrip('. ')}. Copy or download the file again, or update the "
            "package"
        ) from exc


def _require_number_type(operator: str, folder: str, config: dict[str, Any]) -> None:
    for key in ("dtype", "torch_dtype"):
        value = config.get(key)
        if value is not None and (not isinstance(value, str) or value.removeprefix("torch.") not in NUMBER_TYPES):
            raise ParameterError(
                f"{operator}: {os.path.join(folder, 'config.json')} has {key}={value!r}, which is not a number type. "
                "Use 'float32', 'float16' or 'bfloat16'"
            )


def _require_shards(operator: str, folder: str, there: set[str]) -> None:
    """Raise `InputError` if the index of the weights names a file that is not in the folder."""
    path = Path(folder, INDEX)
    if not path.is_file():
        return
    places = read_object(path).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise CorruptFileError(f"{path} does not say in which file each tensor is (weight_map). {AGAIN}")
    missing = sorted(set(places.values()) - there)
    if missing:
        listed = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise InputError(
            f"{operator}: {path} names {show_count(len(missing), 'file')} of weights that the folder does not have: {listed}. "
            "Copy or download them again"
        )


def tensor_shapes(path: Path) -> dict[str, list[int]]:
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
        raise CorruptFileError(f"{path} is not a safetensors file, or is truncated. {AGAIN}") from exc
    if odd:
        name, kind = next(iter(odd.items()))
        raise CorruptFileError(
            f"{path}: the tensor {name!r} has the type {kind!r}, which safetensors does not have. {AGAIN}"
        )
    if 8 + length + stop != size:
        raise CorruptFileError(
            f"{path} should have {8 + length + stop:,} bytes according to its header, but has {size:,}: it is "
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
