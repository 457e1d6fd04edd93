# SPDX-License-Identifier: Apache-2.0
"""What a model makes of a text does not depend on the texts beside it, whatever it and its tokenizer take for padding."""

from __future__ import annotations

import json

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.memory.process_cache import cached
from curator_df.models.inference import LoadedModel
from tests.contracts.operator_cases import kernels_of
from tests.models.tiny_models import SIZES, write_tokenizer

torch = pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")
transformers = pytest.importorskip("transformers", reason="needs the models extra (transformers is not installed)")
TEXTS = ["the river is long", "short water " * 12, "one of them", "not in a country", "a", "or not to be", "to be"]


def table(texts):
    docs = pd.DataFrame({"text": pd.array(texts, "string[pyarrow]")})
    return dd.from_pandas(docs, npartitions=1)


def scores(folder, batch):
    docs = table(TEXTS).pipe(cdf.add_class, cdf.model(folder, model_inference_batch_size=batch), score_of="LABEL_1")
    return docs.compute(scheduler="synchronous")["label_score"].to_numpy(float)


def write_decoder(folder, *, in_config, in_tokenizer):
    """Write a Llama that classifies, which is told the number of its padding by one, both or neither."""
    write_tokenizer(folder)
    torch.manual_seed(5)
    config = transformers.LlamaConfig(**SIZES, num_labels=2, pad_token_id=in_config)
    transformers.LlamaForSequenceClassification(config).eval().save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    del settings["pad_token"]
    path.write_text(json.dumps(settings | ({"pad_token": in_tokenizer} if in_tokenizer else {})))
    return folder


@pytest.mark.parametrize(
    ("in_config", "in_tokenizer"), [(None, "[PAD]"), (0, None), (0, "[PAD]"), (7, "[PAD]"), (-1, "[SEP]")], ids=str
)
def test_a_decoder_judges_by_the_last_token_of_each_text(tmp_path, in_config, in_tokenizer):
    folder = write_decoder(tmp_path, in_config=in_config, in_tokenizer=in_tokenizer)
    alone = scores(folder, 1)
    np.testing.assert_allclose(scores(folder, 100), alone, atol=1e-5)
    assert len(set(alone.round(3))) > 3


def test_a_decoder_without_padding_is_refused(tmp_path):
    folder = write_decoder(tmp_path, in_config=None, in_tokenizer=None)
    with pytest.raises(errors.ParameterError, match=r"has no padding token.*pad_token in its tokenizer_config\.json"):
        scores(folder, 100)


def test_a_decoder_keeps_nothing_to_go_on_with(tmp_path):
    folder = write_decoder(tmp_path, in_config=0, in_tokenizer="[PAD]")
    [kernel] = kernels_of(table(TEXTS).pipe(cdf.add_class, folder))
    loaded = cached("this test's", lambda: LoadedModel(kernel.parameters["model"]))
    made = loaded._weights.module(
        input_ids=torch.tensor([[3, 4, 5]]), attention_mask=torch.ones(1, 3, dtype=torch.long)
    )
    assert made.past_key_values is None


@pytest.mark.parametrize("kind", ["MPNet", "Luke", "Roberta"])
def test_positions_that_begin_behind_padding_are_not_exceeded(tmp_path, kind):
    write_tokenizer(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_max_length": 10**30}))
    config = getattr(transformers, f"{kind}Config")(**SIZES, pad_token_id=1)
    getattr(transformers, f"{kind}Model")(config).eval().save_pretrained(tmp_path)
    docs = table(["water " * 500, "the river"]).pipe(cdf.add_embedding, tmp_path)
    [kernel] = kernels_of(docs)
    assert kernel.parameters["model"].max_tokens == 62
    found = np.stack(docs.compute(scheduler="synchronous")["embedding"].to_list())
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("ConvBert", "changes its output for a text if its batch has a longer one"),
        ("BigBird", "depends on the other texts of its batch"),
    ],
)
def test_a_model_that_reads_padding_is_refused(tmp_path, kind, said):
    write_tokenizer(tmp_path)
    torch.manual_seed(2)
    config = getattr(transformers, f"{kind}Config")(**SIZES)
    getattr(transformers, f"{kind}Model")(config).eval().save_pretrained(tmp_path)
    with pytest.raises(errors.ParameterError, match=said):
        table(TEXTS).pipe(cdf.add_embedding, tmp_path).compute(scheduler="synchronous")
