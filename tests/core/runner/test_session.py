# SPDX-License-Identifier: Apache-2.0
"""A computation without a cluster begins with a warning."""

from __future__ import annotations

import json
import warnings

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df.core.runner import session
from tests.core.runner.fake_client import inline_cluster

SAID = "No curator_df cluster is running, so Dask computes this table in the current process without a memory limit"


@pytest.fixture
def docs(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "_warned", [])
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"n": n, "text": "word"}) + "\n" for n in range(9)))
    return cdf.read_jsonl(tmp_path / "a.jsonl")


def warned(call) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return [one for one in found if str(one.message).startswith(SAID)]


def test_a_computation_without_a_cluster_warns_once_and_names_the_line_of_the_user(docs):
    def compute() -> None:
        for _ in range(2):
            assert docs["n"].sum().compute() == 36
            assert len(docs.head(2)) == 2

    (one,) = warned(compute)
    assert one.filename == __file__
    assert "cluster = curator_df.start_cluster(memory='4GB')" in str(one.message)


@pytest.mark.parametrize(
    "call",
    [
        len,
        lambda docs: docs.persist(),
        lambda docs: docs[docs["n"] > 3].assign(twice=docs["n"] * 2).compute(),
        lambda docs: dd.from_delayed(docs.to_delayed(), meta=docs._meta).compute(),
    ],
    ids=["len", "persist", "chain", "delayed"],
)
def test_every_way_to_compute_warns(docs, call):
    assert len(warned(lambda: call(docs))) == 1


def test_what_computes_nothing_warns_of_nothing(docs):
    def look() -> None:
        chain = docs.pipe(cdf.keep_where, "n > 2").pipe(cdf.drop_exact_duplicates)
        repr(chain), chain._repr_html_(), repr(chain.curate), chain.npartitions, chain.divisions, chain.dtypes
        chain.pipe(cdf.explain, memory="2GB", cpus=1)

    assert warned(look) == []


def test_a_table_of_dask_alone_warns_of_nothing(docs):
    table = dd.from_pandas(pd.DataFrame({"n": [1, 2]}), npartitions=1)
    assert warned(table.compute) == []


def test_after_a_cluster_was_closed_it_warns_again(docs, tmp_path):
    assert len(warned(lambda: len(docs))) == 1

    def run() -> None:
        with inline_cluster():
            assert cdf.write_parquet(docs, tmp_path / "out").rows_written == 9
            assert len(docs) == 9

    assert warned(run) == []
    assert len(warned(lambda: (len(docs), len(docs)))) == 1
