# SPDX-License-Identifier: Apache-2.0
"""Models as files: what is read of them without torch, what they cost, and what is refused."""

from __future__ import annotations

import json
import math
import sys

import pytest

from curator_df import errors
from curator_df.files.hub import download_file
from curator_df.models.batches import BatchSize
from curator_df.models.files import EXPERTS, find_model, require_whole
from curator_df.models.model import Model
from curator_df.models.text_model import EAGER_COPIES, LOADING_FACTOR, RUNTIME_BYTES, text_model

CONFIG = {
    "model_type": "bert",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "max_position_embeddings": 48,
    "id2label": {"10": "k", "2": "c", "0": "a"},
}


def write_weights(path, shape=(10, 32), value=b"\0"):
    count = shape[0] * shape[1]
    header = json.dumps(
        {"w": {"dtype": "F16", "shape": shape, "data_offsets": [0, 2 * count]}, "__metadata__": {}}
    ).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + value * (2 * count))


def write_model(folder, **config):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 40}))
    write_weights(folder / "model.safetensors")
    return folder


def used(folder, **more):
    return text_model("add_x", Model(folder, **{"max_batch_tokens": 100, **more}), head="mean")


def test_a_model_is_described_by_its_files(tmp_path):
    found = find_model("add_x", write_model(tmp_path / "m"))
    assert (found.kind, found.hidden, found.inner, found.heads, found.longest) == ("bert", 32, 64, 4, 40)
    assert (found.parameters, found.classes) == (320, ("a", "c", "k"))
    assert found.local_folder() == str(tmp_path / "m")


def test_the_digest_is_of_the_contents(tmp_path):
    one, same = write_model(tmp_path / "one"), write_model(tmp_path / "same")
    assert find_model("add_x", one).digest == find_model("add_x", same).digest
    write_weights(same / "model.safetensors", value=b"\1")
    assert find_model("add_x", one).digest != find_model("add_x", same).digest


def test_positions_of_padding_are_no_tokens(tmp_path):
    assert find_model("add_x", write_model(tmp_path / "m", model_type="roberta", pad_token_id=8)).longest == 48 - 9


@pytest.mark.parametrize("key", EXPERTS)
def test_a_model_of_experts_is_refused_and_one_of_a_single_one_is_not(key, tmp_path):
    with pytest.raises(errors.ParameterError, match=f"with experts \\({key}=4\\), whose memory in a batch"):
        find_model("add_x", write_model(tmp_path / "several", **{key: 4}))
    assert find_model("add_x", write_model(tmp_path / "one", **{key: 1})).hidden == 32


def test_memory_follows_from_weights_and_batches(tmp_path):
    folder = write_model(tmp_path / "m")
    model, longer = used(folder), used(folder, max_batch_tokens=1_000)
    assert model.held_bytes == RUNTIME_BYTES + LOADING_FACTOR * 4 * 320
    assert longer.call_bytes - model.call_bytes == 4 * 900 * (4 * 32 + 2 * 64 + 2 * 40)
    eager = used(write_model(tmp_path / "deberta", model_type="deberta-v2"))
    assert eager.call_bytes - model.call_bytes == 4 * 100 * 40 * (EAGER_COPIES["deberta-v2"] * 4 - 2)
    assert (model.row_tokens, eager.row_tokens) == (0, 0)
    assert (model.max_tokens, model.max_chars, used(folder, max_tokens=9).max_chars) == (40, 640, 144)


@pytest.mark.parametrize(
    ("config", "distances"),
    [
        ({"position_buckets": 16}, 32),
        ({"position_buckets": -1, "max_relative_positions": 20}, 40),
        ({"position_buckets": -1, "max_relative_positions": -1}, 2 * 48),
        ({"pos_att_type": []}, 0),
        ({"relative_attention": False}, 0),
    ],
)
def test_a_model_of_distances_takes_memory_for_each_document_however_short(tmp_path, config, distances):
    kind = {"model_type": "deberta-v2", "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
    model = used(write_model(tmp_path / "m", **{**kind, **config}), max_batch_tokens=200)
    assert model.files.distances == distances
    token = 4 * (4 * 32 + 2 * 64 + 4 * (EAGER_COPIES["deberta-v2"] * 40 + distances))
    assert model.row_tokens == math.ceil(2 * 4 * distances * 32 / token)
    assert model.batch_bytes == 200 * token
    size = BatchSize(model.batch_tokens, row_tokens=model.row_tokens)
    for length in (1, 7, 40):
        assert size.rows(length) * (length * token + 2 * 4 * distances * 32) <= model.batch_bytes


def test_a_configuration_without_classes_is_read_as_transformers_reads_it(tmp_path):
    found = find_model("add_x", write_model(tmp_path / "m", id2label=None, problem_type="multi_label_classification"))
    assert (found.classes, found.several_classes) == (("LABEL_0", "LABEL_1"), True)


@pytest.mark.parametrize(
    ("gone", "said"),
    [("config.json", "no config"), ("model.safetensors", "safetensors"), ("tokenizer_config.json", "tokenizer")],
)
def test_a_missing_file_is_named(tmp_path, gone, said):
    (write_model(tmp_path / "m") / gone).unlink()
    with pytest.raises((errors.InputError, errors.ParameterError), match=said):
        find_model("add_x", tmp_path / "m")


def test_damaged_and_unknown_files_are_refused(tmp_path):
    with pytest.raises(errors.ParameterError, match="hidden_size"):
        find_model("add_x", write_model(tmp_path / "strange", hidden_size=None))
    folder = write_model(tmp_path / "m")
    (folder / "model.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(errors.CorruptFileError, match="not a safetensors"):
        find_model("add_x", folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(errors.CorruptFileError, match=r"config\.json"):
        find_model("add_x", folder)


def cut(path, count):
    path.write_bytes(path.read_bytes()[:count])


def write_index(folder, *shards):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": dict(enumerate(shards))}))


@pytest.mark.parametrize(
    ("damage", "kind", "said"),
    [
        (
            lambda folder: cut(folder / "model.safetensors", -7),
            errors.CorruptFileError,
            r"model\.safetensors .*truncated",
        ),
        (
            lambda folder: cut(folder / "model.safetensors", 30),
            errors.CorruptFileError,
            r"model\.safetensors is not a safe",
        ),
        (
            lambda folder: cut(folder / "model.safetensors", 0),
            errors.CorruptFileError,
            r"model\.safetensors is not a safe",
        ),
        (
            lambda folder: write_index(folder, "model-1-of-2.safetensors"),
            errors.InputError,
            r"index\.json names 1 file.*model-1-of-2",
        ),
        (
            lambda folder: write_index(folder, 7),
            errors.CorruptFileError,
            r"index\.json does not say in which file each tensor is",
        ),
        (
            lambda folder: (folder / "config.json").write_text("[1]"),
            errors.CorruptFileError,
            r"config\.json must have a JSON object",
        ),
        (
            lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe"),
            errors.CorruptFileError,
            r"config\.json is not JSON",
        ),
        (
            lambda folder: (folder / "config.json").write_text("[" * 100_000),
            errors.CorruptFileError,
            r"config\.json is not JSON",
        ),
        (lambda folder: (folder / "config.json").write_text(""), errors.CorruptFileError, r"config\.json is not JSON"),
        (
            lambda folder: (folder / "tokenizer_config.json").write_text("7"),
            errors.CorruptFileError,
            r"tokenizer_config\.json must have",
        ),
        (
            lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
            errors.ParameterError,
            r"pickle files \(pytorch_model\.bin\) are not loaded, as they can run code\. Convert",
        ),
        (
            lambda folder: [path.unlink() for path in folder.iterdir()],
            errors.InputError,
            r"no config\.json.*the folder is empty",
        ),
    ],
)
def test_a_damaged_folder_is_an_error_that_names_the_file_and_what_to_do(tmp_path, damage, kind, said):
    folder = write_model(tmp_path / "m")
    damage(folder)
    with pytest.raises(kind, match=said) as caught:
        find_model("add_x", folder)
    assert str(folder) in str(caught.value)
    assert any(word in str(caught.value) for word in ("again", "Convert", "Use a folder"))


@pytest.mark.parametrize("name", ["tokenizer.json", "special_tokens_map.json", "generation_config.json"])
@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "is empty"), (b'{"version": "1.0", "added', "is truncated"), (b"<!DOCTYPE html>", "is not JSON")],
)
def test_a_damaged_json_file_of_a_model_is_named_before_the_run(tmp_path, name, content, said):
    folder = write_model(tmp_path / "m")
    find_model("add_x", folder)
    (folder / name).write_bytes(content)
    with pytest.raises(errors.CorruptFileError, match=rf"{name} {said}.*Copy or download the file again"):
        find_model("add_x", folder)


def test_json_files_that_no_model_reads_are_not_checked(tmp_path):
    folder = write_model(tmp_path / "m")
    (folder / "trainer_state.json").write_text('{"loss": NaN, "log')
    find_model("add_x", folder)
    require_whole(str(folder))
    (folder / "model.safetensors.index.json").write_text('{"weight')
    with pytest.raises(errors.CorruptFileError, match=r"model\.safetensors\.index\.json is not JSON"):
        require_whole(str(folder))


def test_weights_that_safetensors_cannot_read_are_damaged(tmp_path):
    from curator_df.models.inference import loading

    class SafetensorError(Exception):
        pass

    folder = str(write_model(tmp_path / "m"))
    with (
        pytest.raises(errors.CorruptFileError, match=r"the model 'm' in .*/m'.* are damaged: invalid offset\. Copy or"),
        loading("the model 'm'", folder),
    ):
        raise SafetensorError("invalid offset.\nmore")


@pytest.mark.parametrize("position", range(1, 9))
def test_weights_that_are_truncated_anywhere_are_named(tmp_path, position):
    path = write_model(tmp_path / "m") / "model.safetensors"
    cut(path, path.stat().st_size * position // 9 - 1)
    with pytest.raises(errors.CorruptFileError, match=r"model\.safetensors .*truncated.*again"):
        find_model("add_x", path.parent)


def test_a_folder_in_place_of_the_weights_is_as_if_they_were_missing(tmp_path):
    path = write_model(tmp_path / "m") / "model.safetensors"
    path.unlink()
    path.mkdir()
    with pytest.raises(errors.ParameterError, match="no safetensors weights"):
        find_model("add_x", path.parent)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_link_to_a_file_that_is_gone_is_named(tmp_path, name):
    path = write_model(tmp_path / "m") / name
    path.unlink(missing_ok=True)
    path.symlink_to("../../blobs/1f2e")
    with pytest.raises(
        errors.InputError, match=rf"add_x: .*{name}' is a link to '../../blobs/1f2e', which does not exist"
    ):
        find_model("add_x", path.parent)


@pytest.mark.parametrize("most", [-1, 0, "many", [3], True])
def test_a_tokenizer_with_a_wrong_length_is_named(tmp_path, most):
    folder = write_model(tmp_path / "m")
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": most}))
    with pytest.raises(
        errors.CorruptFileError, match=r"tokenizer_config\.json has model_max_length=.*not a number of tokens"
    ):
        find_model("add_x", folder)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"torch_dtype": "float12"}, "torch_dtype='float12'"),
        ({"dtype": 7}, "dtype=7"),
        ({"max_position_embeddings": "many"}, "max_position_embeddings='many'"),
        ({"max_position_embeddings": -1}, "max_position_embeddings=-1"),
        ({"model_type": [3]}, r"model_type=\[3\]"),
        ({"id2label": ["a", "b"]}, "id2label"),
        ({"id2label": {"a": "b"}}, "id2label"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"num_attention_heads": "4"}, "num_attention_heads"),
    ],
)
def test_a_configuration_with_a_wrong_value_names_it(tmp_path, wrong, said):
    with pytest.raises((errors.CorruptFileError, errors.ParameterError), match=said):
        find_model("add_x", write_model(tmp_path / "m", **wrong))


def test_a_tensor_of_an_unknown_type_is_named(tmp_path):
    folder = write_model(tmp_path / "m")
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data.replace(b'"F16"', b'"Q16"'))
    with pytest.raises(errors.CorruptFileError, match=r"model\.safetensors: the tensor 'w' has the type 'Q16'"):
        find_model("add_x", folder)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"max_tokens": 41}, "reads at most 40 tokens of a text"),
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"model_inference_batch_size": "many"}, "'many'"),
        ({"max_batch_tokens": 1.5}, "max_batch_tokens"),
        ({"revision": "main"}, "revision"),
    ],
)
def test_parameters_out_of_range_are_refused(tmp_path, arguments, said):
    with pytest.raises(errors.ParameterError, match=said):
        used(write_model(tmp_path / "m"), **arguments)


def test_what_is_neither_a_folder_nor_an_id_is_refused(tmp_path):
    with pytest.raises(errors.InputError, match="neither an existing folder nor"):
        find_model("add_x", tmp_path / "nothing here")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A cache of the hub with one model in it, and no network."""
    constants = pytest.importorskip("huggingface_hub.constants", reason="needs the models extra (huggingface_hub)")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--maker--tiny"
    write_model(folder / "snapshots" / ("ab" * 20))
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("ab" * 20)
    return folder


def test_a_model_of_the_hub_is_found_in_its_cache_with_its_commit(hub):
    found = find_model("add_x", "maker/tiny")
    assert (found.revision, found.hidden) == ("ab" * 20, 32)
    assert found.digest == find_model("add_x", hub / "snapshots" / ("ab" * 20)).digest


@pytest.mark.parametrize("revision", ["refs/pr/1", "refs%2Fpr%2F1", "refs/heads/main", "main", "ab" * 20])
def test_a_file_of_a_model_is_found_in_any_revision(hub, revision):
    for name in ("refs/pr/1", "refs/heads/main"):
        (hub / "refs" / name).parent.mkdir(parents=True)
        (hub / "refs" / name).write_text("ab" * 20)
    path, address = download_file(f"hf://maker/tiny@{revision}/config.json")
    assert path == str(hub / "snapshots" / ("ab" * 20) / "config.json")
    assert address == f"hf://maker/tiny@{'ab' * 20}/config.json"


def test_a_model_that_cannot_be_downloaded_is_an_error(hub):
    with pytest.raises(errors.InputError, match=r"'maker/other' at 'v1'.*could not be downloaded"):
        find_model("add_x", "maker/other", "v1")


def test_without_the_hubs_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(errors.MissingExtraError, match=r"pip install .*\[hub\]"):
        find_model("add_x", "maker/tiny")
