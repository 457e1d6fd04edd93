# SPDX-License-Identifier: Apache-2.0
"""Every published classifier as it stands in the catalogue, but for its weights: small ones of the same form."""

from __future__ import annotations

import dataclasses
import json
import re

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import curator_df as cdf
from curator_df.models.classifiers import prompt_scores
from curator_df.models.classifiers.catalogue import named
from curator_df.ops.language.language_blocks import PUBLISHED, find_model
from tests.kernels.fasttext_files import write_word_model
from tests.models.test_gte_models import write_new
from tests.models.tiny_models import write_bert, write_classifier, write_deberta, write_head

ENTRIES = {
    name: entry for name, entry in vars(cdf.classifiers).items() if isinstance(entry, cdf.classifiers.Classifier)
}
NO_COMMIT = ("FINEPDFS_DCLM", "FINEWEB_MIXTRAL_EDU", "FINEWEB_NEMOTRON_EDU", "OPENLID")
"""Of which no commit was found published."""
NO_LICENSE = ("DOLMA_3_QUALITY", "FINEPDFS_DCLM", "WEBORGANIZER_FORMAT", "WEBORGANIZER_TOPIC")
"""Whose publishers state no license, or none was found."""
OF_OWN_LAYERS = {"QUALITY": 3, "DOMAIN": 26, "MULTILINGUAL_DOMAIN": 26, "CONTENT_TYPE": 11}
FASTTEXT = {"DCLM": 2, "DOLMA_3_QUALITY": 2, "DOLMA_3_TOPIC": 0, "GLOTLID": 0, "OPENLID": 0}
"""With the number of their classes that is known without the file."""
FINEPDFS = {"FINEPDFS_EDU": 6, "FINEPDFS_DCLM": 6, "FINEPDFS_OCR_QUALITY": 4}
WEBORGANIZER = {"WEBORGANIZER_FORMAT": 24, "WEBORGANIZER_TOPIC": 24}
WIDTHS = OF_OWN_LAYERS | FASTTEXT | FINEPDFS | WEBORGANIZER
WIDTHS |= {"FINEMATH": 3, "AEGIS_DEFENSIVE": 15, "AEGIS_PERMISSIVE": 15}
OF_ONE_NUMBER = ("FINEMATH", "FINEWEB_EDU", "FINEWEB_MIXTRAL_EDU", "FINEWEB_NEMOTRON_EDU", *FINEPDFS)
ADAPTERS = ("INSTRUCTION_DATA_GUARD", "AEGIS_DEFENSIVE", "AEGIS_PERMISSIVE")
"""Their forms are tested in test_lora.py and test_generative_classifier.py."""
TEXTS = ["the river is long", None, "", "short water " * 30, "one of them", "not in a country"]


def computed(entry, **how):
    docs = dd.from_pandas(pd.DataFrame({"text": pd.array(TEXTS, "string[pyarrow]")}), npartitions=1)
    return docs.pipe(cdf.add_class, cdf.model(entry, **how)).compute(scheduler="synchronous")


def test_all_entries_are_tested():
    assert {*OF_OWN_LAYERS, *OF_ONE_NUMBER, *ADAPTERS, *FASTTEXT, *WEBORGANIZER} == set(ENTRIES)


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_says_who_permits_what_and_names_a_commit(name):
    entry = ENTRIES[name]
    assert entry.name == name
    assert (entry.license is None) == (name in NO_LICENSE)
    assert named(name) is entry
    assert (entry.revision is None) == (name in NO_COMMIT)
    assert len(entry.classes) == len(set(entry.classes)) == WIDTHS.get(name, 2)
    assert entry.revision is None or re.fullmatch("[0-9a-f]{40}", entry.revision)
    assert (entry.base_revision is None) == (name not in (*OF_OWN_LAYERS, *ADAPTERS))
    assert (entry.file is None) == (name not in FASTTEXT)
    assert entry.base_revision is None or re.fullmatch("[0-9a-f]{40}", entry.base_revision)
    assert re.fullmatch("[0-9a-f]{40}", prompt_scores.REVISION)


@pytest.mark.parametrize("name", NO_COMMIT)
def test_without_a_known_commit_the_user_names_one(name, monkeypatch):
    asked = []

    def downloaded(model, **how):
        asked.append((model, how["revision"]))
        raise OSError("no network here")

    monkeypatch.setattr("huggingface_hub.snapshot_download", downloaded)
    with pytest.raises(
        cdf.errors.ParameterError,
        match=rf"no commit is pinned for {name}.*Pass cdf\.model\(cdf\.classifiers\.{name}, revision=",
    ):
        computed(ENTRIES[name])
    assert not asked
    with pytest.raises(cdf.errors.InputError, match=r"at 'main'.*no network here"):
        computed(ENTRIES[name], revision="main")
    assert asked == [(ENTRIES[name].model, "main")]


@pytest.mark.parametrize("revision", [None, "main"])
@pytest.mark.parametrize("name", OF_OWN_LAYERS)
def test_what_a_model_stands_on_is_pinned_with_it(name, revision, tmp_path, monkeypatch):
    entry = ENTRIES[name]
    encoder = write_deberta(tmp_path / "encoder")
    labels = {str(place): label for place, label in enumerate(entry.classes)}
    model = write_classifier(tmp_path / "model", encoder, "model", {"fc": OF_OWN_LAYERS[name]}, id2label=labels)
    config = json.loads((model / "config.json").read_text()) | {"base_model": "maker/encoder"}
    (model / "config.json").write_text(json.dumps(config))
    asked = []

    def downloaded(repository, **how):
        asked.append((repository, how["revision"]))
        return str(model if repository == entry.model else encoder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", downloaded)
    assert len(computed(dataclasses.replace(entry, max_tokens=64), revision=revision).dropna()) == 5
    wanted = (entry.revision, entry.base_revision) if revision is None else ("main", None)
    assert asked == list(zip((entry.model, "maker/encoder"), wanted, strict=True))


@pytest.mark.parametrize(("name", "width"), OF_OWN_LAYERS.items())
def test_layers_on_an_encoder_give_one_of_their_classes(name, width, tmp_path):
    labels = {str(place): f"class {place}" for place in range(width)}
    encoder = write_deberta(tmp_path / "encoder")
    folder = write_classifier(tmp_path / "model", encoder, "model", {"fc": width}, id2label=labels)
    entry = dataclasses.replace(ENTRIES[name], model=str(folder), max_tokens=64)
    with pytest.warns(UserWarning, match=rf"other classes than those published for {name}; .*'class 0'"):
        computed(entry)
    labels = {str(place): label for place, label in enumerate(entry.classes)}
    folder = write_classifier(tmp_path / "published", encoder, "model", {"fc": width}, id2label=labels)
    entry = dataclasses.replace(entry, model=str(folder))
    found = computed(entry).dropna()
    assert set(found["label"]) <= set(entry.classes)
    assert ((found["label_score"] > 1 / width) & (found["label_score"] <= 1)).all()
    assert len(found) == 5
    # A commit is that of the hub, not of a folder.
    assert found["label"].equals(computed(str(folder)).dropna()["label"])


@pytest.mark.parametrize("name", OF_ONE_NUMBER)
def test_one_number_is_bounded_and_makes_the_tiers_of_the_entry(name, tmp_path):
    torch = pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    kind = "modernbert" if name in FINEPDFS else "bert"
    folder = write_head(tmp_path / "model", kind, labels=("score",), seed=5)
    module, tokenizer = (
        AutoModelForSequenceClassification.from_pretrained(folder).eval(),
        AutoTokenizer.from_pretrained(folder),
    )
    with torch.inference_mode():
        module.classifier.weight *= 6  # some beyond the bounds, some between them
        module.classifier.bias += 2.5
        module.save_pretrained(folder)
        texts = [text for text in TEXTS if text is not None]
        given = [tokenizer(text, truncation=True, return_tensors="pt") for text in texts]
        raw = np.array([float(module(**one).logits[0, 0]) for one in given])
    entry = dataclasses.replace(ENTRIES[name], model=str(folder), max_tokens=64)
    found = computed(entry).dropna()
    assert (raw < 0).any() or (raw > entry.clip[1]).any()
    np.testing.assert_allclose(found["label_score"].to_numpy(float), raw.clip(*entry.clip), atol=1e-5)
    least = sorted(entry.thresholds.items(), key=lambda tier: tier[1])
    wanted = [[tier for tier, number in least if score >= number][-1] for score in raw.clip(*entry.clip)]
    assert found["label"].tolist() == wanted


@pytest.mark.parametrize("kind", ["modernbert", "deberta-v2"])
def test_a_head_of_transformers_gives_its_probabilities(kind, tmp_path):
    torch = pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = write_head(tmp_path / "model", kind, labels=("low", "middle", "high"), seed=2)
    module, tokenizer = (
        AutoModelForSequenceClassification.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    with torch.inference_mode():
        texts = [text for text in TEXTS if text is not None]
        made = [module.eval()(**tokenizer(text, truncation=True, return_tensors="pt")).logits[0] for text in texts]
    shares = torch.stack(made).softmax(-1)
    found = computed(str(folder)).dropna()
    assert found["label"].tolist() == [("low", "middle", "high")[place] for place in shares.argmax(-1).tolist()]
    np.testing.assert_allclose(found["label_score"].to_numpy(float), shares.max(-1).values.numpy(), atol=1e-5)


@pytest.mark.parametrize("name", WEBORGANIZER)
def test_weborganizer_runs_without_its_code(name, tmp_path):
    entry = ENTRIES[name]
    folder = write_new(tmp_path / "model", labels=entry.classes)
    found = computed(dataclasses.replace(entry, model=str(folder), max_tokens=64)).dropna()
    assert len(found) == 5
    assert set(found["label"]) <= set(entry.classes)
    assert len(set(found["label"])) > 1


def hub_with(monkeypatch, folder, commit="ab" * 20):
    """Give the files of a folder for every model of the hub; return what was requested."""
    asked = []

    def downloaded(model, **how):
        asked.append((model, how["revision"], how["allow_patterns"]))
        place = folder / (how["revision"] or commit)
        if not place.exists():
            place.symlink_to(folder / "files")
        return str(place)

    monkeypatch.setattr("huggingface_hub.snapshot_download", downloaded)
    return asked


@pytest.mark.parametrize("name", FASTTEXT)
def test_a_fasttext_entry_is_read_from_its_file(name, tmp_path, monkeypatch):
    entry = ENTRIES[name]
    labels = list(entry.classes) or ["one", "two", "three"]
    (tmp_path / "files").mkdir()
    write_word_model(tmp_path / "files" / entry.file, ["river", "cheap", "one"][: len(labels)], labels)
    asked = hub_with(monkeypatch, tmp_path)
    found = computed(name, revision=None if entry.revision else "v1")
    assert asked == [(entry.model, entry.revision or "v1", [entry.file])]
    assert set(found["label"].dropna()) <= set(labels)
    local = computed(dataclasses.replace(entry, model=str(tmp_path / "files")))
    assert local.equals(found)
    with pytest.raises(cdf.errors.ParameterError, match="max_tokens=8 applies only to transformers models"):
        computed(entry, max_tokens=8, revision="v1")


def test_a_language_model_is_named_or_has_an_address(tmp_path, monkeypatch):
    (tmp_path / "files").mkdir()
    write_word_model(tmp_path / "files" / "model_v3.bin", ["water", "wasser"], ["eng_Latn", "deu_Latn"])
    asked = hub_with(monkeypatch, tmp_path)
    for name, address in PUBLISHED.items():
        entry = ENTRIES[name]
        at = f"@{entry.revision}" if entry.revision else ""
        assert address == f"hf://{entry.model}{at}/{entry.file}"
    model = find_model("add_language", "GLOTLID")
    assert model.source == PUBLISHED["GLOTLID"]
    assert model.labels == ("eng_Latn", "deu_Latn")
    unpinned = find_model("add_language", "hf://cis-lmu/glotlid/model_v3.bin")
    assert unpinned.source == f"hf://cis-lmu/glotlid@{'ab' * 20}/model_v3.bin"
    assert unpinned.digest == model.digest
    assert [revision for _, revision, _ in asked] == [ENTRIES["GLOTLID"].revision, None]
    docs = dd.from_pandas(pd.DataFrame({"text": ["water water", "wasser"]}), npartitions=1)
    made = docs.pipe(cdf.keep_language, "de", model="GLOTLID", min_score=0)
    assert made.compute(scheduler="synchronous")["text"].tolist() == ["wasser"]
    with pytest.raises(cdf.errors.InputError, match=r"'cis-lmu/glotlid' .* has no file 'other.bin'"):
        find_model("add_language", "hf://cis-lmu/glotlid/other.bin")
    for address in ("hf://glotlid", "hf://datasets/cis-lmu/glotlid/model_v3.bin"):
        with pytest.raises(cdf.errors.InputError, match=f"'{address}' is not the address of a file of a model"):
            find_model("add_language", address)


def test_a_worker_downloads_the_commit_of_a_language_model(tmp_path, monkeypatch):
    (tmp_path / "files").mkdir()
    write_word_model(tmp_path / "files" / "model_v3.bin", ["water", "wasser"], ["eng_Latn", "deu_Latn"])
    asked = hub_with(monkeypatch, tmp_path)
    docs = dd.from_pandas(pd.DataFrame({"text": ["water water", "wasser"]}), npartitions=1)
    made = docs.pipe(cdf.add_language, model="hf://cis-lmu/glotlid/model_v3.bin")
    (tmp_path / ("ab" * 20)).unlink()  # as on another machine
    assert made.compute(scheduler="synchronous")["language"].tolist() == ["eng_Latn", "deu_Latn"]
    assert [revision for _, revision, _ in asked] == [None, "ab" * 20]


def test_a_name_that_is_none_is_corrected(tmp_path, monkeypatch):
    with pytest.raises(
        cdf.errors.ParameterError,
        match=r"'FINEWEB_EDUU' is neither the name of a classifier.*Did you mean 'FINEWEB_EDU'",
    ):
        computed("FINEWEB_EDUU")
    monkeypatch.chdir(tmp_path)
    write_bert(tmp_path / "QUALITY", labels=("a", "b"))
    assert set(computed("QUALITY")["label"].dropna()) <= {"a", "b"}
