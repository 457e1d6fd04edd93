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
from tests.models.tiny_models import write_bert, write_classifier, write_deberta

ENTRIES = {
    name: entry for name, entry in vars(cdf.classifiers).items() if isinstance(entry, cdf.classifiers.Classifier)
}
NO_COMMIT = ("FINEWEB_MIXTRAL_EDU", "FINEWEB_NEMOTRON_EDU")
"""Of which no commit was found published."""
OF_OWN_LAYERS = {"QUALITY": 3, "DOMAIN": 26, "MULTILINGUAL_DOMAIN": 26, "CONTENT_TYPE": 11}
WIDTHS = OF_OWN_LAYERS | {"FINEMATH": 3, "AEGIS_DEFENSIVE": 15, "AEGIS_PERMISSIVE": 15}
OF_ONE_NUMBER = ("FINEMATH", "FINEWEB_EDU", "FINEWEB_MIXTRAL_EDU", "FINEWEB_NEMOTRON_EDU")
ADAPTERS = ("INSTRUCTION_DATA_GUARD", "AEGIS_DEFENSIVE", "AEGIS_PERMISSIVE")
"""Their forms are tested in test_lora.py and test_generative_classifier.py."""
TEXTS = ["the river is long", None, "", "short water " * 30, "one of them", "not in a country"]


def computed(entry, **how):
    docs = dd.from_pandas(pd.DataFrame({"text": pd.array(TEXTS, "string[pyarrow]")}), npartitions=1)
    return docs.pipe(cdf.add_class, cdf.model(entry, **how)).compute(scheduler="synchronous")


def test_all_entries_are_tested():
    assert {*OF_OWN_LAYERS, *OF_ONE_NUMBER, *ADAPTERS} == set(ENTRIES)


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_says_who_permits_what_and_names_a_commit(name):
    entry = ENTRIES[name]
    assert entry.name == name
    assert entry.licence
    assert (entry.revision is None) == (name in NO_COMMIT)
    assert len(entry.classes) == len(set(entry.classes)) == WIDTHS.get(name, 2)
    assert entry.revision is None or re.fullmatch("[0-9a-f]{40}", entry.revision)
    assert (entry.base_revision is None) == (name in OF_ONE_NUMBER)
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

    folder = write_bert(tmp_path / "model", labels=("score",), seed=5)
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
    assert (raw < 0).any() or (raw > 5).any()
    np.testing.assert_allclose(found["label_score"].to_numpy(float), raw.clip(0, 5), atol=1e-5)
    least = sorted(entry.thresholds.items(), key=lambda tier: tier[1])
    wanted = [[tier for tier, number in least if score >= number][-1] for score in raw.clip(0, 5)]
    assert found["label"].tolist() == wanted
