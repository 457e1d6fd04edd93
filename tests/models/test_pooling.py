# SPDX-License-Identifier: Apache-2.0
"""What is made of a model's last layer by default: what sentence-transformers wrote beside it."""

from __future__ import annotations

import json

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df import errors
from tests.contracts.operator_cases import kernels_of
from tests.models.tiny_models import write_bert


@pytest.fixture
def model(tmp_path):
    return write_bert(tmp_path / "bert")


def write_pooling(folder, said, modules=("Transformer", "Pooling", "Normalize")):
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(said))
    kinds = [{"idx": place, "type": f"sentence_transformers.models.{kind}"} for place, kind in enumerate(modules)]
    (folder / "modules.json").write_text(json.dumps(kinds))


def head(folder, **how):
    docs = dd.from_pandas(pd.DataFrame({"text": ["the river", "water"]}), npartitions=1)
    (kernel,) = kernels_of(docs.pipe(cdf.add_embedding, folder, **how))
    return kernel.parameters["model"].head


def flags(**said):
    return {
        f"pooling_mode_{name}": said.get(name, False)
        for name in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")
    }


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (flags(cls_token=True) | {"include_prompt": True}, "cls"),
        (flags(mean_tokens=True) | {"word_embedding_dimension": 32}, "mean"),
        ({"pooling_mode": "cls"}, "cls"),
        ({"pooling_mode": "mean"}, "mean"),
    ],
)
def test_the_default_is_what_is_written_down(model, said, wanted):
    assert head(model) == "mean"  # nothing is
    write_pooling(model, said)
    assert head(model) == wanted
    assert (head(model, pooling="cls"), head(model, pooling="mean")) == ("cls", "mean")


@pytest.mark.parametrize(
    "said",
    [
        flags(max_tokens=True),
        flags(lasttoken=True),
        flags(),
        flags(cls_token=True, mean_tokens=True),
        {"pooling_mode": "max"},
    ],
)
def test_another_pooling_is_refused_until_the_user_says_which(model, said):
    write_pooling(model, said)
    with pytest.raises(errors.ParameterError, match=r"1_Pooling/config\.json specifies a pooling that is neither"):
        head(model)
    assert head(model, pooling="mean") == "mean"


def test_layers_after_the_pooling_are_not_left_out_in_silence(model):
    write_pooling(model, flags(mean_tokens=True), modules=("Transformer", "Pooling", "Dense", "Normalize"))
    with pytest.raises(errors.ParameterError, match=r"has a layer Dense after its pooling, which is not supported"):
        head(model)
    assert head(model, pooling="mean") == "mean"


def test_pooling_that_is_no_json_is_refused_with_the_file(model):
    write_pooling(model, {})
    (model / "1_Pooling" / "config.json").write_text("{")
    with pytest.raises(errors.CorruptFileError, match=r"1_Pooling/config\.json is not JSON"):
        head(model)
