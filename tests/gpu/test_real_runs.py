# SPDX-License-Identifier: Apache-2.0
"""Whole runs on a cluster of each backend: on a GPU where there is one, and the same on the CPU."""

import importlib.util
import json

import numpy as np
import pandas as pd
import pytest

import curator_df as cdf
from tests.core.runner.fake_client import inline_cluster

ROWS = 2_000


@pytest.fixture(params=["tcp", "ucx"])
def cluster(request, backend):
    """A cluster whose workers have blocks of this backend."""
    if backend == "pandas" and request.param == "tcp":
        with inline_cluster("6GB", 1) as running:
            yield running
            return
    options = {"memory": "12GB", "gpus": 1, "device_memory": "2GB"}
    if request.param == "ucx":
        if backend == "pandas" or importlib.util.find_spec("distributed_ucxx") is None:
            pytest.skip("needs an NVIDIA GPU and the ucx extra (distributed-ucxx)")
        options["protocol"] = "ucx"
    with cdf.start_cluster(**options) as running:
        yield running


@pytest.fixture
def rows(tmp_path):
    """Texts of words by chance: every fifth repeats the one before, and every hundredth is null."""
    draw = np.random.default_rng(7)
    texts = [" ".join(draw.choice(list("abcdefghijklmnop"), 60).astype(str)) for _ in range(ROWS)]
    texts = [texts[number - (number % 5 == 4)] if number % 100 else None for number in range(ROWS)]
    made = pd.DataFrame({"id": np.arange(ROWS), "text": pd.array(texts, "string[pyarrow]")})
    lines = (
        json.dumps({"id": int(row.id), "text": None if row.text is pd.NA else row.text}) for row in made.itertuples()
    )
    (tmp_path / "in.jsonl").write_text("".join(line + "\n" for line in lines))
    return made


@pytest.mark.parametrize("drop", ["drop_exact_duplicates", "drop_near_duplicates"])
def test_a_chain_with_a_drop_writes_the_rows_that_it_should(cluster, backend, rows, drop, tmp_path):
    docs = cdf.read_jsonl(tmp_path / "in.jsonl", backend=backend, blocksize="40kB")
    kept = docs.pipe(cdf.keep_where, "id % 7 != 0").pipe(getattr(cdf, drop)).pipe(cdf.add_metrics, ["word_count"])
    receipt = cdf.write_parquet(kept, tmp_path / "out", rejects=tmp_path / "rejects")
    of_seven = rows[rows["id"] % 7 != 0]
    repeated = of_seven["text"].duplicated()  # nulls, too, are the same
    found = pd.read_parquet(tmp_path / "out")
    assert found["id"].tolist() == of_seven["id"][~repeated].tolist()
    assert set(found["word_count"].dropna()) == {60}
    assert (receipt.rows_read, receipt.rows_written) == (ROWS, len(of_seven) - repeated.sum())
    rejected = pd.read_parquet(tmp_path / "rejects")
    assert sorted(rejected["id"]) == sorted(set(rows["id"]) - set(found["id"]))
    if backend == "cudf":
        assert 0 < receipt.measured_device_bytes <= receipt.projected_device_bytes


def test_rows_on_which_a_function_raises_are_set_aside(cluster, backend, rows, tmp_path):
    def odd(block):
        if (block["id"] == 1234).any():
            raise ValueError("no luck")
        return block["id"] % 2 == 1

    docs = cdf.read_jsonl(tmp_path / "in.jsonl", backend=backend, blocksize="40kB").pipe(cdf.keep_where, odd)
    receipt = cdf.write_parquet(docs, tmp_path / "out", on_error="quarantine")
    assert pd.read_parquet(tmp_path / "out")["id"].tolist() == rows["id"][rows["id"] % 2 == 1].tolist()
    assert receipt.rows_written == ROWS // 2
