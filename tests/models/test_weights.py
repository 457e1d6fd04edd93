# SPDX-License-Identifier: Apache-2.0
"""Weights are in a process once, whatever uses them; and code that comes with a model runs only where the user says so."""

from __future__ import annotations

import json

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.plan import plan_stream
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import Folder, ParquetFormat
from curator_df.memory.budget import choose_layout
from curator_df.memory.process_cache import release_held
from curator_df.models import inference as weights
from curator_df.models.text_model import RUNTIME_BYTES
from tests.contracts.operator_cases import kernels_of
from tests.models.tiny_models import write_bert, write_tokenizer

torch = pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")
TEXTS = ["the river is long", "short water " * 30, "one of them", "not in a country"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_bert(tmp_path_factory.mktemp("bert"), labels=("a", "b"))


@pytest.fixture
def loads(monkeypatch):
    made, load = [], weights.Weights.__init__
    monkeypatch.setattr(weights.Weights, "__init__", lambda self, which: (made.append(which), load(self, which))[1])
    return made


def test_what_torch_keeps_of_a_gpu_goes_back_with_the_weights(model, monkeypatch):
    emptied = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(True))
    embed = table().pipe(cdf.add_embedding, model)
    embed.compute(scheduler="synchronous")
    release_held()
    assert emptied == []  # on a CPU there is nothing of the kind
    close = weights.Weights.close
    monkeypatch.setattr(weights.Weights, "close", lambda self: (setattr(self, "_device", "cuda"), close(self)))
    embed.compute(scheduler="synchronous")
    release_held()
    assert emptied == [True]


def table():
    return dd.from_pandas(pd.DataFrame({"text": pd.array(TEXTS, "string[pyarrow]")}), npartitions=1)


def test_steps_with_the_same_files_load_them_once(model, loads):
    docs = table().pipe(cdf.add_embedding, model, into="mean", pooling="mean")
    docs = docs.pipe(
        cdf.add_embedding, cdf.model(model, max_tokens=8, max_batch_tokens=100), into="first", pooling="cls"
    )
    docs = docs.pipe(cdf.add_class, model, into="one")  # the same files, with the layer that makes classes
    docs = docs.pipe(cdf.add_class, cdf.model(model, max_chars=5), into="other")
    together = docs.compute(scheduler="synchronous")
    assert [one.head == "classes" for one in loads] == [False, True]
    for name, pooling, most in (("mean", "mean", None), ("first", "cls", 8)):
        release_held()
        alone = (
            table()
            .pipe(cdf.add_embedding, cdf.model(model, max_tokens=most), pooling=pooling)
            .compute(scheduler="synchronous")
        )
        np.testing.assert_allclose(
            np.stack(together[name].to_list()), np.stack(alone["embedding"].to_list()), atol=1e-5
        )


def test_the_plan_counts_weights_and_packages_once(model, tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    docs = cdf.read_jsonl(str(tmp_path / "a.jsonl"))

    def held_bytes(docs):
        sink = FileSink(Folder("."), ParquetFormat("zstd"), 1)
        return plan_stream(lower(docs), sink, None, choose_layout(6_000_000_000, cpus=2, held_bytes=0)).held_bytes

    plain = docs.pipe(cdf.add_embedding, model, into="a")
    (kernel,) = kernels_of(plain)
    assert kernel.price.held_bytes == RUNTIME_BYTES + sum(kernel.price.shared.values())
    again = plain.pipe(cdf.add_embedding, model, into="b", pooling="cls")
    assert held_bytes(again) == held_bytes(plain)
    other = plain.pipe(cdf.add_class, model)
    assert held_bytes(other) == held_bytes(plain) + sum(kernel.price.shared.values())


CONFIGURATION = """
from transformers import PretrainedConfig


class OursConfig(PretrainedConfig):
    model_type = "ours-and-no-one-elses"
"""
MODELING = """
import torch
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from .configuration_ours import OursConfig


class OursModel(PreTrainedModel):
    config_class = OursConfig

    def __init__(self, config):
        super().__init__(config)
        self.table = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.post_init()

    def forward(self, input_ids=None, attention_mask=None, **more):
        return BaseModelOutput(last_hidden_state=self.table(input_ids))
"""


@pytest.fixture
def with_code(tmp_path):
    """Write a model of a kind that transformers does not have, with the code that it needs."""
    from safetensors.torch import save_file

    folder = tmp_path / "ours"
    folder.mkdir()
    write_tokenizer(folder)
    (folder / "configuration_ours.py").write_text(CONFIGURATION)
    (folder / "modeling_ours.py").write_text(MODELING)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "vocab_size": 128}
    code = {"AutoConfig": "configuration_ours.OursConfig", "AutoModel": "modeling_ours.OursModel"}
    said = {"model_type": "ours-and-no-one-elses", "auto_map": code, "max_position_embeddings": 64, **sizes}
    (folder / "config.json").write_text(json.dumps(said))
    torch.manual_seed(0)
    save_file({"table.weight": torch.randn(128, 16)}, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_code_that_comes_with_a_model_runs_only_where_it_is_trusted(with_code, tmp_path, monkeypatch):
    import transformers

    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    docs = table().pipe(cdf.add_embedding, with_code, normalize_vectors=False)
    with pytest.raises(
        errors.ParameterError,
        match=r"'ours-and-no-one-elses', which transformers [\d.]+ does not have\. .*trust_remote_code=True",
    ):
        docs.compute(scheduler="synchronous")
    trusted = table().pipe(cdf.add_embedding, cdf.model(with_code, trust_remote_code=True), normalize_vectors=False)
    found = np.stack(trusted.compute(scheduler="synchronous")["embedding"].to_list())
    module = transformers.AutoModel.from_pretrained(with_code, trust_remote_code=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(with_code)
    with torch.inference_mode():
        wanted = [
            module.table(tokenizer(text, truncation=True, return_tensors="pt")["input_ids"])[0].mean(0)
            for text in TEXTS
        ]
    np.testing.assert_allclose(found, np.stack(wanted), atol=1e-5)


def test_code_is_part_of_what_the_model_is(with_code):
    def digest():
        (kernel,) = kernels_of(table().pipe(cdf.add_embedding, cdf.model(with_code, trust_remote_code=True)))
        return kernel.parameters["model"].files.digest

    before = digest()
    with open(with_code / "modeling_ours.py", "a") as file:
        file.write("# changed\n")
    assert digest() != before


def test_trust_has_no_meaning_where_nothing_comes_with_code():
    with pytest.raises(errors.ParameterError, match="trust_remote_code=True applies only to transformers models"):
        table().pipe(cdf.add_embedding, cdf.model(len, trust_remote_code=True), dimensions=1)
    with pytest.raises(errors.ParameterError, match="trust_remote_code does not apply"):
        table().pipe(cdf.keep_class, cdf.model(cdf.classifiers.AEGIS_DEFENSIVE, trust_remote_code=True), classes="safe")


@pytest.mark.parametrize(
    ("content", "kind", "said"),
    [
        (
            None,
            errors.InputError,
            r"has no .*tokenizer\.json, and .* could not make .*Copy or download tokenizer\.json, too",
        ),
        ("{}", errors.CorruptFileError, r"cannot read .*tokenizer\.json.*Copy or download the file again"),
        (
            '{"added_tokens": [',
            errors.CorruptFileError,
            r"cannot read .*tokenizer\.json.*Copy or download the file again",
        ),
        ("", errors.CorruptFileError, r"cannot read .*tokenizer\.json.*Copy or download the file again"),
    ],
)
def test_a_tokenizer_that_cannot_be_loaded_is_an_error_that_names_the_file(tmp_path, content, kind, said):
    folder = write_bert(tmp_path / "bert")
    embed = table().pipe(cdf.add_embedding, folder)
    path = folder / "tokenizer.json"
    path.unlink() if content is None else path.write_text(content)
    # With a file of the same name in the list of the model's files, a missing one is an error already.
    if content is None:
        with pytest.raises(errors.InputError, match=r"'tokenizer\.json' of the model folder .* is not on this machine"):
            embed.compute(scheduler="synchronous")
        embed = table().pipe(cdf.add_embedding, folder)
    with pytest.raises(kind, match=said) as caught:
        embed.compute(scheduler="synchronous")
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
@pytest.mark.parametrize("share", [0, 0.001, 0.5, 0.999])
def test_files_that_were_truncated_after_the_plan_are_an_error_that_names_them(tmp_path, name, share):
    folder = write_bert(tmp_path / "bert")
    embed = table().pipe(cdf.add_embedding, folder)
    path = folder / name
    content = path.read_bytes().rstrip()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(errors.CorruptFileError, match=rf"{name} (is|should).*again"):
        embed.compute(scheduler="synchronous")


def test_a_value_that_transformers_refuses_names_the_file_to_look_at(tmp_path):
    folder = write_bert(tmp_path / "bert")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_act": "zzz"}))
    with pytest.raises(
        errors.InputError, match=r"could not be loaded: KeyError: 'zzz'\. Check that config\.json and the weights"
    ):
        table().pipe(cdf.add_embedding, folder).compute(scheduler="synchronous")


@pytest.mark.parametrize("labels", [(), ("a", "b")])
def test_weights_of_another_size_than_the_configuration_are_named(tmp_path, labels):
    folder = write_bert(tmp_path / "bert", labels=labels)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 100}))
    said = r"weights of the model '.*bert' do not belong to its config\.json: .*word_embeddings\.weight has the shape \(128, 32\)"
    with pytest.raises(errors.InputError, match=said + r", but by config\.json it would be \(100, 32\)\. Copy"):
        run(folder, labels)


@pytest.mark.parametrize("labels", [(), ("a", "b")])
def test_a_tokenizer_with_tokens_that_the_model_does_not_have_is_an_error(tmp_path, labels):
    folder = write_bert(tmp_path / "bert", labels=labels)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["river"] = 7000
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(
        errors.InputError, match=r"a text has the token 7,000, but vocab_size in config\.json is 128\. Copy"
    ):
        run(folder, labels)


def run(folder, labels):
    """Compute the classes of a model with labels, or the embeddings of another one."""
    table = dd.from_pandas(pd.DataFrame({"text": ["the long river"]}), npartitions=1)
    step = cdf.add_class(table, str(folder), into="c") if labels else cdf.add_embedding(table, str(folder))
    return step.compute(scheduler="synchronous")
