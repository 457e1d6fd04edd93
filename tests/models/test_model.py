# SPDX-License-Identifier: Apache-2.0
"""`model`: what it accepts, that operators take it in place of a name, and which settings are part of a run's identity."""

from __future__ import annotations

import pickle

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df import errors
from tests.contracts.operator_cases import fingerprints_of, kernels_of


def table():
    return dd.from_pandas(pd.DataFrame({"text": ["to be", "or not to be", None]}), npartitions=1)


def lengths(texts):
    return [[len(text), 8] for text in texts]


def test_operators_take_a_model_with_its_settings():
    cut = cdf.model(lengths, max_chars=5, model_inference_batch_size=1)
    for chosen, wanted in ((lengths, [5, 12]), (cdf.model(lengths), [5, 12]), (cut, [5, 5])):
        vectors = table().pipe(cdf.add_embedding, chosen, dimensions=2, normalize_vectors=False)
        found = vectors.compute(scheduler="synchronous")["embedding"].dropna()
        assert [vector[0] for vector in found] == wanted
    for chosen, wanted in ((lengths, ["other", "long"]), (cut, ["other", "other"])):
        classes = table().pipe(cdf.add_class, chosen, labels=["long", "other"]).compute(scheduler="synchronous")
        assert classes["label"].dropna().tolist() == wanted
    kept = table().pipe(cdf.keep_class, cut, classes="other", labels=["long", "other"]).compute(scheduler="synchronous")
    assert len(kept) == 2


def test_settings_are_fields_and_can_be_changed():
    chosen = cdf.model("a/model", max_tokens=7, revision="v1")
    assert (chosen.model, chosen.max_tokens, chosen.revision) == ("a/model", 7, "v1")
    assert chosen.replace(max_tokens=9) == cdf.model("a/model", max_tokens=9, revision="v1")
    assert pickle.loads(pickle.dumps(chosen)) == chosen
    with pytest.raises(
        errors.ParameterError, match=r"'max_token' is not a setting of a model\. Did you mean 'max_tokens'\?"
    ):
        chosen.replace(max_token=9)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_tokens": 0}, "model: max_tokens=0 is not a whole number of 1 or more"),
        ({"max_chars": True}, "max_chars=True"),
        ({"max_batch_tokens": 1.5}, r"max_batch_tokens=1\.5"),
        ({"model_inference_batch_size": "many"}, "model_inference_batch_size='many'.*or 'auto'"),
        ({"compute_dtype": "float16"}, "compute_dtype='float16'"),
        ({"resources": 2}, r"resources=2 is not what cdf\.resources"),
        ({"revision": 1}, "revision=1 must be a str"),
        ({"trust_remote_code": "yes"}, "trust_remote_code='yes' must be True or False"),
    ],
)
def test_settings_that_no_model_has_are_refused_at_once(settings, said):
    with pytest.raises(errors.ParameterError, match=said):
        cdf.model("a/model", **settings)


@pytest.mark.parametrize(("value", "said"), [(5, "model=5 must be a path"), (cdf.model("a"), "a Model already")])
def test_what_is_no_model_is_refused(value, said):
    with pytest.raises(errors.ParameterError, match=said):
        cdf.model(value)


@pytest.mark.parametrize(
    ("settings", "is_same"),
    [
        ({"max_chars": 5}, False),
        ({"model_inference_batch_size": 3}, True),
        ({"resources": cdf.resources(cpus=1)}, True),
    ],
    ids=str,
)
def test_only_what_changes_answers_is_part_of_the_identity(settings, is_same):
    plain = table().pipe(cdf.add_embedding, lengths, dimensions=2)
    other = table().pipe(cdf.add_embedding, cdf.model(lengths, **settings), dimensions=2)
    assert (fingerprints_of(plain) == fingerprints_of(other)) is is_same


def test_files_have_the_same_rule():
    pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")
    from tests.contracts.tiny_prompts import prompts_model

    prompts = prompts_model()
    plain = fingerprints_of(table().pipe(cdf.add_prompt_scores, model=cdf.model(prompts, max_tokens=16)))
    for settings, is_same in (
        ({"max_batch_tokens": 99}, True),
        ({"model_inference_batch_size": 3}, True),
        ({"max_tokens": 12}, False),
        ({"max_chars": 30}, False),
        ({"compute_dtype": "bfloat16"}, False),
    ):
        chosen = cdf.model(prompts, **{"max_tokens": 16, **settings})
        assert (fingerprints_of(table().pipe(cdf.add_prompt_scores, model=chosen)) == plain) is is_same, settings


def test_recommend_takes_a_model_with_its_settings(tmp_path):
    pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")
    from tests.models.tiny_models import write_bert

    folder = write_bert(tmp_path / "bert")
    (tmp_path / "in.jsonl").write_text('{"text": "a b"}\n' * 20)
    found = cdf.recommend(tmp_path / "in.jsonl", memory="4GB", model=cdf.model(folder, max_batch_tokens=100))
    assert found.batch_tokens == 100
    assert "the number that you set" in str(found)


def test_the_catalog_gives_way_to_settings(monkeypatch):
    asked = []

    def refused(model, **how):
        asked.append((model, how["revision"]))
        raise OSError("no network here")

    monkeypatch.setattr("huggingface_hub.snapshot_download", refused)
    for revision in (None, "main"):
        with pytest.raises(errors.InputError, match="no network here"):
            table().pipe(cdf.add_class, cdf.model(cdf.classifiers.DOMAIN, revision=revision))
    assert [revision for _, revision in asked] == [cdf.classifiers.DOMAIN.revision, "main"]
    assert kernels_of(table().pipe(cdf.add_embedding, lengths, dimensions=2))
