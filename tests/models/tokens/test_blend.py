# SPDX-License-Identifier: Apache-2.0
"""`blend` by tokens that a tokenizer counts: the rows are those that counts in a column give, and each text is tokenized once."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.planning.device_plan import TO_HOST
from curator_df.core.planning.program import Step
from curator_df.io.shuffle import operators as shuffle
from curator_df.io.shuffle.shares import Shares
from curator_df.memory.process_cache import release_held
from curator_df.memory.sizes import show_size
from curator_df.models import token_count
from curator_df.models.tokens.tokenizer import LoadedTokenizer
from tests.core.runner.fake_client import inline_cluster
from tests.models.tokens.tiny_tokenizers import SENTENCES, tiny

pytest.importorskip("tokenizers", reason="needs the tokenizers extra (tokenizers is not installed)")
WEIGHTS = {"web": 1, "code": 3}


@pytest.fixture(scope="module")
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running
    release_held()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    tiny(folder)
    return folder / "tokenizer.json"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    home = tmp_path_factory.mktemp("in")
    draw = np.random.default_rng(3)
    for name, rows, most in (("web", 900, 4), ("code", 200, 40)):
        sizes = draw.integers(1, most, rows)
        texts = [SENTENCES[number % 2] * int(size) for number, size in enumerate(sizes)]
        lines = [
            json.dumps({"id": number, "text": text, "kind": "ab"[number % 3 == 0]}) for number, text in enumerate(texts)
        ]
        (home / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return home


def tables_of(inputs, **how):
    return {name: cdf.read_jsonl(inputs / f"{name}.jsonl", **how) for name in WEIGHTS}


@pytest.mark.parametrize("tokens", [None, 30_000])
def test_a_tokenizer_gives_the_rows_of_a_column_and_counts_each_text_once(
    cluster, made, inputs, tmp_path, tokens, monkeypatch
):
    tables = tables_of(inputs)
    column = {name: df.pipe(cdf.add_token_count, made) for name, df in tables.items()}
    how = {"weights": WEIGHTS, "unit": "tokens", "tokens": tokens, "seed": 5}
    expected = cdf.blend(column, tmp_path / "column", token_column="token_count", **how).compute()
    counted = []
    count = LoadedTokenizer.count

    def counting(self: LoadedTokenizer, texts: pd.Series) -> object:
        counted.append(len(texts))
        return count(self, texts)

    monkeypatch.setattr(LoadedTokenizer, "count", counting)
    found = cdf.blend(tables_of(inputs, blocksize="20kB"), tmp_path / "out", tokenizer=made, **how).compute()
    assert sum(counted) == 1_100
    assert found.columns.tolist() == ["id", "text", "kind", "source"]
    pd.testing.assert_frame_equal(found, expected.drop(columns="token_count"))
    sums = expected.groupby("source")["token_count"].sum()
    assert sums["code"] / sums.sum() == pytest.approx(0.75, abs=0.03)
    assert tokens is None or sums.sum() == pytest.approx(tokens, rel=0.1)
    said = cdf.read_receipt(tmp_path / "out").settings["shares"]
    assert said == cdf.read_receipt(tmp_path / "column").settings["shares"]
    assert f"'code' {100 * sums['code'] / sums.sum():.1f}% ({sums['code']:,}; requested 75.0%)" in said
    assert not list((tmp_path / "out").rglob("*.arrow"))


def test_kinds_of_one_table_and_shares_that_were_lost_in_a_crash(cluster, made, inputs, tmp_path, monkeypatch):
    docs, how = tables_of(inputs)["code"], {"source_column": "kind", "weights": {"a": 1, "b": 1}, "unit": "tokens"}
    expected = cdf.blend(
        docs.pipe(cdf.add_token_count, made), tmp_path / "column", token_column="token_count", **how
    ).compute()
    with monkeypatch.context() as patched:
        patched.setattr(shuffle, "_add_remarks", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            cdf.blend(docs, tmp_path / "out", tokenizer=made, **how)
    sizes = next((tmp_path / "out").rglob("sizes/*.arrow"))
    shutil.copy(sizes, sizes.with_name("part-000099.arrow"))  # as an input split that did not finish may leave one
    found = cdf.blend(docs, tmp_path / "out", tokenizer=made, **how).compute()
    assert found["id"].tolist() == expected["id"].tolist()
    said = [cdf.read_receipt(tmp_path / name).settings["shares"] for name in ("out", "column")]
    assert said[0] == said[1]
    assert said[0].startswith("of the tokens: 'a' ")


def test_another_tokenizer_or_text_column_is_another_blend(cluster, made, inputs, tmp_path):
    tiny(tmp_path / "other", vocabulary=300)
    how = {"weights": WEIGHTS, "unit": "tokens"}
    cdf.blend(tables_of(inputs), tmp_path / "out", tokenizer=made, **how)
    with pytest.raises(errors.ResumeError, match="tokenizer"):
        cdf.blend(tables_of(inputs), tmp_path / "out", tokenizer=tmp_path / "other", **how)
    with pytest.raises(errors.ResumeError, match="text changed from 'text' to 'kind'"):
        cdf.blend(tables_of(inputs), tmp_path / "out", tokenizer=made, text="kind", **how)


def test_the_plan_has_the_pass_that_counts_with_its_memory(cluster, made, inputs, tmp_path):
    by_rows = cdf.explain(tables_of(inputs), cdf.blend, weights=WEIGHTS)
    plan = cdf.explain(tables_of(inputs), cdf.blend, weights=WEIGHTS, unit="tokens", tokenizer=made)
    assert plan.projected_bytes > by_rows.projected_bytes
    said = dict(plan.remarks)["shares"]
    peak = show_size(plan.projected_bytes)
    assert f"counts the tokens of 'text' with {str(made)!r} first, with an estimated peak of {peak}" in said


def test_a_plan_has_the_copy_to_the_host_in_each_pass_over_blocks_of_a_gpu(inputs, monkeypatch):
    def with_copy(program):
        return replace(program, steps=(*program.steps, Step(TO_HOST.name, TO_HOST, TO_HOST.price)))

    monkeypatch.setattr(shuffle, "for_sink", with_copy)
    plan = cdf.explain(tables_of(inputs), cdf.blend, weights=WEIGHTS, memory="2GB", cpus=2)
    assert [stage.title for stage in plan.stages] == ["count", "write"]
    assert all(TO_HOST.name in [name for name, *_ in stage.steps] for stage in plan.stages)


def test_what_does_not_fit_is_refused_before_the_folder_is_emptied(made, inputs, tmp_path, monkeypatch):
    with inline_cluster(memory="450MB", cpus=2):
        cdf.blend(tables_of(inputs), tmp_path / "out", weights=WEIGHTS)
        before = sorted(tmp_path.rglob("*.parquet"))
        monkeypatch.setattr(token_count, "CALL_BYTES", 400_000_000)
        with pytest.raises(errors.BudgetError, match="after 400 MB for steps"):
            cdf.blend(
                tables_of(inputs),
                tmp_path / "out",
                weights=WEIGHTS,
                unit="tokens",
                tokenizer=made,
                on_existing="overwrite",
            )
        assert sorted(tmp_path.rglob("*.parquet")) == before


@pytest.mark.parametrize(
    ("error", "how", "said"),
    [
        (errors.InputError, {"tokenizer": "nowhere.json"}, "nowhere.json"),
        (errors.ColumnError, {"text": "txt"}, "blend: the table 'web' needs the column 'txt'"),
        (
            errors.ParameterError,
            {"weights": {"web": 1, "code": 1}, "text": "kind", "empty": True},
            "which has no tokens",
        ),
    ],
)
def test_what_cannot_be_counted_is_refused(cluster, made, inputs, tmp_path, error, how, said):
    tables = tables_of(inputs)
    if how.pop("empty", False):
        tables["web"] = tables["web"].assign(kind="")
        tables["code"] = tables["code"].assign(kind="")
    given = {"weights": WEIGHTS, "unit": "tokens", "tokenizer": made, **how}
    with pytest.raises(error, match=said):
        cdf.blend(tables, tmp_path / "out", **given)


def test_a_share_that_is_far_from_the_requested_one_is_told(cluster, tmp_path):
    rows = [{"kind": "ab"[row == 0], "n": 1 + 999 * (row == 0)} for row in range(50)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    how = {"source_column": "kind", "weights": {"a": 1, "b": 1}, "unit": "tokens", "token_column": "n"}
    cdf.blend(cdf.read_jsonl(tmp_path / "in.jsonl"), tmp_path / "out", tokens=60, seed=1, **how)
    (said,) = [each for each in cdf.read_receipt(tmp_path / "out").advice if "instead of 50.0%" in each]
    assert re.match(r"'[ab]' has [\d.]+% of the tokens instead of 50.0%. Whole rows are taken at random", said)


def test_a_table_whose_texts_have_another_name_is_told_to_rename_them(cluster, made, inputs, tmp_path):
    tables = tables_of(inputs)
    tables["code"] = tables["code"].rename(columns={"text": "content"})
    with pytest.raises(
        errors.ColumnError,
        match=r"the table 'code' has no column 'text'.*it has: 'id', 'content', 'kind'\. Rename .* df\.rename\(columns=",
    ):
        cdf.blend(tables, tmp_path / "out", weights=WEIGHTS, unit="tokens", tokenizer=made)


def test_shares_whose_rows_would_be_taken_too_often_are_refused():
    with pytest.raises(errors.ParameterError, match=r"rows of .a. would be taken 5,000,005 times.*a smaller rows= or"):
        Shares({"a": 1, "b": 1}, 10**13).epochs({"a": 10**6 - 1, "b": 10**6})


def test_a_column_of_only_nulls_takes_the_type_of_the_other_tables(cluster, tmp_path):
    pq.write_table(pa.table({"n": [1, 2], "list": [[1], []]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"list": pa.nulls(2), "n": pa.nulls(2)}), tmp_path / "b.parquet")
    tables = {name: cdf.read_parquet(tmp_path / f"{name}.parquet") for name in "ba"}
    mixed = cdf.blend(tables, tmp_path / "out", epochs={"a": 1, "b": 1})
    assert mixed.dtypes["n"] == "Int64"
    assert sorted(mixed["n"].compute().dropna()) == [1, 2]
    assert mixed["list"].compute().isna().sum() == 2


@pytest.mark.parametrize(
    ("tables", "how", "said"),
    [
        (["web", "wiki"], {"epochs": {"web": 1, "wiki": 1}}, r"tables is a list\. Pass a dict of tables"),
        ({"web": 0, "wiki": 0}, {"epochs": [1, 0.5]}, r"epochs=\[1, 0.5\] must be a dict of names and numbers"),
        ({"web": 0, "wiki": 0}, {"weights": "even"}, "weights='even' must be a dict"),
    ],
)
def test_what_is_not_a_dict_is_refused(tmp_path, tables, how, said):
    with pytest.raises(errors.ParameterError, match=said):
        cdf.blend(tables, tmp_path / "out", **how)
