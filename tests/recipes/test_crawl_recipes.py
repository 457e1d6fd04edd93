# SPDX-License-Identifier: Apache-2.0
"""Recipes that need models, on the first records of a real crawl, with tiny models in place of those that are published.

The rows of each step are fixed. The models go through the loading code of the published ones.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import curator_df as cdf
from tests.core.runner.fake_client import inline_cluster
from tests.kernels.fasttext_files import write_word_model
from tests.models.test_local_models import write_fasttext
from tests.models.tiny_models import write_head
from tests.models.tokens.tiny_tokenizers import ids_of, tiny
from tests.recipes.crawl_part import first_records
from tests.recipes.test_shipped import ensemble_of, parameters_of

DATA = Path(__file__).parents[1] / "data"
RECORDS = 300
BEFORE = [("read", 300, 300), ("read_warc", 300, 152), ("remove_html", 152, 152)]


def run_recipe(
    name: str, shared_data: Path, folder: Path, *, records: int = RECORDS, **settings: Any
) -> tuple[list[tuple[str, int, int]], Any]:
    """Run a recipe on the first records of the crawl, and return the rows of each step, and the receipt."""
    crawl = first_records(shared_data, folder, records)
    recipe = cdf.load_recipe(name, input=crawl, output=str(folder / "out"), **settings)
    with inline_cluster():
        receipt = recipe.run()
    return [(step.name, step.rows_in, step.rows_out) for step in receipt.steps], receipt


REDPAJAMA = [
    *BEFORE,
    ("keep_profile", 152, 142),
    ("remove_repeated_parts", 142, 130),
    ("keep_language", 130, 58),
]


def test_redpajama_v2_without_its_model(shared_data, tmp_path):
    counted, receipt = run_recipe(
        "redpajama_v2", shared_data, tmp_path, steps={"add_perplexity": None, "keep_where": None}
    )
    assert counted == [
        *REDPAJAMA,
        ("keep_profile", 58, 54),
        ("drop_exact_duplicates", 54, 54),
        ("drop_near_duplicates", 54, 54),
        ("write", 54, 54),
    ]
    dropped = {step.name: dict(step.dropped) for step in receipt.steps}
    assert dropped["remove_repeated_parts"] == {"only_duplicate_lines": 12}
    assert dropped["keep_profile"] == {"word_count_min": 2, "lines_start_with_bulletpoint": 2}


def test_redpajama_v2_samples_by_importance(shared_data, tmp_path):
    target = pd.DataFrame({"text": ["An encyclopedia says when a town was founded, and which river runs through it."]})
    raw = pd.DataFrame({"text": ["Click here to install the package, then run the command below."]})
    cdf.describe_importance(raw, target).to_parquet(tmp_path / "weights.parquet")
    steps = {
        "add_perplexity": None,
        "keep_where": None,
        "add_importance": {"ngram_weights": str(tmp_path / "weights.parquet")},
        "sample_by_importance": {"fraction": 0.5, "noise": False},
    }
    counted, _ = run_recipe("redpajama_v2", shared_data, tmp_path, steps=steps)
    assert counted[-3:] == [("add_importance", 54, 54), ("sample_by_importance", 54, 27), ("write", 27, 27)]
    kept = pd.read_parquet(tmp_path / "out")
    assert kept.importance.notna().all()


def test_redpajama_v2_keeps_the_head_and_the_middle(shared_data, tmp_path):
    pytest.importorskip("kenlm", reason="needs the perplexity extra (kenlm is not installed)")
    perplexity = {"model": str(DATA / "pets.arpa.bin"), "tokenizer": None, "buckets": [240, 260]}
    counted, receipt = run_recipe(
        "redpajama_v2",
        shared_data,
        tmp_path,
        steps={"add_perplexity": perplexity},
        write={"partition_on": "perplexity_bucket"},
    )
    assert counted == [
        *REDPAJAMA,
        ("add_perplexity", 58, 58),
        ("keep_where", 58, 43),
        ("keep_profile", 43, 42),
        ("drop_exact_duplicates", 42, 42),
        ("drop_near_duplicates", 42, 42),
        ("write", 42, 42),
    ]
    kept = pd.concat(
        pd.read_parquet(tmp_path / "out" / f"perplexity_bucket={bucket}").assign(bucket=bucket)
        for bucket in ("head", "middle")
    )
    assert len(kept) == receipt.rows_written
    assert kept[kept["bucket"] == "head"].perplexity.max() < 240 <= kept[kept["bucket"] == "middle"].perplexity.min()
    assert kept.perplexity.max() < 260
    assert not (tmp_path / "out/perplexity_bucket=tail").exists()


def test_nemotron_cc_writes_buckets(shared_data, tmp_path):
    model = write_fasttext(tmp_path / "quality.bin")
    counted, _ = run_recipe("nemotron_cc", shared_data, tmp_path, steps={"add_class": ensemble_of(model)})
    assert counted == [
        *BEFORE,
        ("keep_where", 152, 116),
        ("keep_language", 116, 116),
        ("normalize_unicode", 116, 116),
        ("drop_exact_duplicates", 116, 57),
        ("drop_near_duplicates", 57, 50),
        *[("add_class", 50, 50)] * 3,
        ("add_quality_tier", 50, 50),
        ("keep_profile", 50, 44),
        ("write", 44, 44),
    ]
    buckets = {int(path.name.removeprefix("bucket=")): pd.read_parquet(path) for path in tmp_path.glob("out/bucket=*")}
    assert {bucket: len(rows) for bucket, rows in buckets.items()} == {11: 35, 15: 6, 16: 3}
    for bucket, rows in buckets.items():
        assert (rows["bucket_score"] // 0.05).astype(int).eq(bucket).all()
        scores = rows[["fasttext_score", "nemotron_edu_score", "mixtral_edu_score"]].to_numpy() / [1, 5, 5]
        assert scores.max(axis=1) == pytest.approx(rows["bucket_score"].to_numpy(), abs=1e-6)


def test_nemotron_cc_with_the_models_that_it_names(shared_data, tmp_path, monkeypatch):
    """The recipe runs unchanged: the hub has a fastText model, and two models of transformers with one output."""
    pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")
    entries = {name: getattr(cdf.classifiers, name) for name in ("DCLM", "FINEWEB_NEMOTRON_EDU", "FINEWEB_MIXTRAL_EDU")}
    places = {entry.model: tmp_path / name for name, entry in entries.items()}
    places[entries["DCLM"].model].mkdir()
    write_word_model(tmp_path / "DCLM" / entries["DCLM"].file, ["the", "click"], ["hq", "cc"])
    for seed, name in enumerate(("FINEWEB_NEMOTRON_EDU", "FINEWEB_MIXTRAL_EDU")):
        write_head(tmp_path / name, "bert", labels=("score",), seed=seed, length=512)
    asked = []

    def downloaded(model, **how):
        asked.append((model, how["revision"]))
        return str(places[model])

    monkeypatch.setattr("huggingface_hub.snapshot_download", downloaded)
    counted, _ = run_recipe("nemotron_cc", shared_data, tmp_path)
    assert [step for step in counted if step[0] == "add_class"] == [("add_class", 50, 50)] * 3
    assert set(asked) == {
        (entries["DCLM"].model, entries["DCLM"].revision),
        *((name, "main") for name in [*places][1:]),
    }
    rows = pd.concat(pd.read_parquet(path) for path in tmp_path.glob("out/bucket=*"))
    assert len(rows) == counted[-1][2] > 0
    assert set(rows["fasttext"]) <= {"hq", "cc"}
    for name in ("nemotron_edu", "mixtral_edu"):
        assert rows[f"{name}_score"].between(0, 5).all()
        assert (rows[name] == "high_quality").equals(rows[f"{name}_score"] >= 2.5)
    scores = rows[["fasttext_score", "nemotron_edu_score", "mixtral_edu_score"]].to_numpy(float) / [1, 5, 5]
    assert scores.max(axis=1) == pytest.approx(rows["bucket_score"].to_numpy(float), abs=1e-6)


def test_dolma_3_to_tokens(shared_data, tmp_path):
    pytest.importorskip("tokenizers", reason="needs the models extra (tokenizers is not installed)")
    model = {"classifier": write_fasttext(tmp_path / "quality.bin")}
    steps = {"add_class": {"1": model, "2": {**model, "score_of": "good"}}}
    counted, receipt = run_recipe("dolma_3", shared_data, tmp_path, steps=steps)
    assert counted == [
        *BEFORE,
        ("keep_profile", 152, 128),
        ("normalize_newlines", 128, 128),
        ("keep_profile", 128, 93),
        ("keep_language", 93, 46),
        ("drop_exact_duplicates", 46, 43),
        ("drop_near_duplicates", 43, 43),
        ("remove_repeated_substrings", 43, 43),
        *[("add_class", 43, 43)] * 2,
        ("write", 43, 43),
    ]
    pool = pd.concat(pd.read_parquet(path) for path in sorted((tmp_path / "out").glob("topic=*")))
    made = tiny(tmp_path / "tokenizer")
    (tmp_path / "benchmark.txt").write_text(" ".join(pool.text.iloc[0].split()[:40]))
    mix = cdf.load_recipe(
        "dolma_3_mix",
        input=str(tmp_path / "out"),
        output=str(tmp_path / "tokens"),
        write={"tokenizer": str(tmp_path / "tokenizer")},
        steps={"drop_contaminated": {"benchmarks": str(tmp_path / "benchmark.txt")}},
    )
    with inline_cluster():
        receipt = mix.run()
    steps = {step.name: step for step in receipt.steps}
    assert dict(steps["drop_contaminated"].dropped) == {"contaminated": 1}
    tokens = np.concatenate([np.load(path) for path in sorted((tmp_path / "tokens").glob("*.npy"))])
    documents = np.split(tokens, np.flatnonzero(tokens == made.token_to_id("</s>")) + 1)[:-1]
    copies = Counter(map(tuple, documents))
    assert len(documents) == receipt.rows_written > 0
    ((_, repeated),) = (step for step in parameters_of("dolma_3_mix") if step[0] == "repeat_rows")
    for text, score in zip(pool.text.iloc[1:], pool.quality_score.iloc[1:], strict=True):
        times = repeated["times"].get(str(int(score // 0.05)), 0)
        assert copies[tuple(ids_of(made, text))] in (math.floor(times), math.ceil(times))


WHOLE = {
    "dolma_3": [
        ("keep_profile", 758, 591),
        ("normalize_newlines", 591, 591),
        ("keep_profile", 591, 391),
        ("keep_language", 391, 212),
        ("drop_exact_duplicates", 212, 202),
        ("drop_near_duplicates", 202, 199),
        ("remove_repeated_substrings", 199, 199),
        *[("add_class", 199, 199)] * 2,
        ("write", 199, 199),
    ],
    "nemotron_cc": [
        ("keep_where", 758, 574),
        ("keep_language", 574, 574),
        ("normalize_unicode", 574, 574),
        ("drop_exact_duplicates", 574, 285),
        ("drop_near_duplicates", 285, 258),
        *[("add_class", 258, 258)] * 3,
        ("add_quality_tier", 258, 258),
        ("keep_profile", 258, 217),
        ("write", 217, 217),
    ],
    "redpajama_v2": [
        ("keep_profile", 758, 712),
        ("remove_repeated_parts", 712, 653),
        ("keep_language", 653, 299),
        ("keep_profile", 299, 271),
        ("drop_exact_duplicates", 271, 271),
        ("drop_near_duplicates", 271, 271),
        ("write", 271, 271),
    ],
}
"""Rows of the steps after the extraction, of all 1,485 records."""


@pytest.mark.proof
@pytest.mark.parametrize("name", WHOLE)
def test_rows_of_each_step_of_the_whole_crawl(shared_data, tmp_path, name):
    model = {"classifier": write_fasttext(tmp_path / "quality.bin")}
    steps = {
        "dolma_3": {"add_class": {"1": model, "2": {**model, "score_of": "good"}}},
        "nemotron_cc": {"add_class": ensemble_of(model["classifier"])},
        "redpajama_v2": {"add_perplexity": None, "keep_where": None},
    }
    counted, receipt = run_recipe(name, shared_data, tmp_path, records=1485, steps=steps[name])
    assert counted[:3] == [("read", 1485, 1485), ("read_warc", 1485, 758), ("remove_html", 758, 758)]
    assert counted[3:] == WHOLE[name]
    assert receipt.rows_quarantined == 0
