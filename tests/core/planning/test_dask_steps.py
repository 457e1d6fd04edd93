# SPDX-License-Identifier: Apache-2.0
"""Dask's own steps in a chain: which are taken, what the others are refused with, and what receipts call them."""

import json
import os
import subprocess
import sys

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.planning.lowering import lower


@pytest.fixture
def folder(tmp_path):
    rows = ({"n": i, "lang": ("de", "en", "fr")[i % 3], "words": ["a", "b"]} for i in range(30))
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


@pytest.fixture
def docs(folder):
    return cdf.read_jsonl(str(folder / "in.jsonl"), blocksize="200B")


def double(block):
    return block.assign(n=block["n"] * 2)


SEVERAL_BLOCKS = {
    "ffill": lambda df: df.ffill(),
    "bfill": lambda df: df.bfill(),
    "shift": lambda df: df.assign(before=df["n"].shift(1)),
    "diff": lambda df: df[["n"]].diff(),
    "map_overlap": lambda df: df.map_overlap(double, 1, 1),
    "sort_values": lambda df: df.sort_values("n"),
    "cumsum": lambda df: df[["n"]].cumsum(),
    "head": lambda df: df.head(3, npartitions=-1, compute=False),
}


@pytest.mark.parametrize("verb", SEVERAL_BLOCKS)
def test_what_needs_several_blocks_is_refused_by_its_verb(docs, verb):
    with pytest.raises(errors.ExpressionError, match=rf"^{verb}, a step of Dask, needs more than one block"):
        lower(SEVERAL_BLOCKS[verb](docs))


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (lambda df: df.reset_index(drop=True), "reset_index.*changes the index.*Remove the call.*add_ids"),
        (lambda df: df.assign(n=df["n"].reset_index(drop=True)), "reset_index.*changes the index"),
        (lambda df: df.set_index("n"), "set_index.*changes the index"),
        (lambda df: df.sample(frac=0.5, random_state=1), "^sample,.*block size.*sample_rows"),
        (
            lambda df: df.random_split([0.5, 0.5], random_state=1)[0],
            r"random_split.*block size.*split_rows\(df, .*disjoint",
        ),
        (lambda df: df.partitions[0], "partitions.*fewer files"),
        (lambda df: df[["n"]].drop_duplicates(), "drop_duplicates.*drop_exact_duplicates"),
        (lambda df: dd.concat([df, df]), r"concat.*read_jsonl\(\[a, b\]\).*blend"),
        (lambda df: df[["n"]].persist(scheduler="sync"), r"Remove .persist\(\)"),
        (
            lambda df: df.map_partitions(lambda b, k: b, dask.delayed(max)(1, 2), meta=df._meta),
            "Compute the value first",
        ),
    ],
)
def test_a_refusal_says_why_and_what_to_do(docs, step, said):
    with pytest.raises(errors.ExpressionError, match=said):
        lower(step(docs))


def test_two_inputs_are_refused_with_the_ways_to_join_them(folder, docs):
    (folder / "other.jsonl").write_text('{"n": 1, "lang": "de", "words": []}\n')
    with pytest.raises(errors.ExpressionError, match=r"2 inputs.*read_jsonl\(\[a, b\]\).*blend"):
        lower(dd.concat([docs, cdf.read_jsonl(str(folder / "other.jsonl"))]))


def test_a_table_of_another_reader_is_refused_with_what_to_do(tmp_path):
    table = pd.DataFrame({"n": [1, 2]})
    table.to_parquet(tmp_path / "n.parquet")
    with pytest.raises(errors.ExpressionError, match=r"read_text_files, read_warc.*to_parquet\(path\).*read_parquet"):
        lower(dd.from_pandas(table, npartitions=1))
    with pytest.raises(errors.ExpressionError, match=r"Dask's read_parquet\. Use curator_df's"):
        lower(dd.read_parquet(tmp_path / "n.parquet"))


@pytest.mark.parametrize(
    "values",
    [
        ["de", "fr"],
        ("de", "fr"),
        {"de", "fr"},
        pd.Series(["de", "fr"]),
        np.array(["de", "fr"]),
        ["de", None, 3, "fr"],
        ["de", *map(str, range(5000)), "fr"],
    ],
    ids=["list", "tuple", "set", "series", "array", "mixed", "long"],
)
def test_isin_keeps_the_rows_that_pandas_keeps(docs, values):
    chosen = docs[docs["lang"].isin(values)]
    (step,) = lower(chosen).steps
    block = docs.compute()
    assert step.name == "filter"
    assert step.action(block)["n"].tolist() == [i for i in range(30) if i % 3 != 1]


def test_values_of_isin_count_in_the_plan_and_the_fingerprint(docs):
    def step(values):
        return lower(docs[docs["n"].isin(values)]).steps[0]

    many = step([*range(100_000)])
    assert many.price.fixed_bytes == many.price.held_bytes >= 800_000
    assert many.fingerprint == step([*range(99_999, -1, -1)]).fingerprint
    assert many.fingerprint != step([*range(50_000), -1, *range(50_001, 100_000)]).fingerprint


def test_a_value_that_dask_wraps_is_part_of_the_step(docs):
    def add(block, number):
        return block.assign(n=block["n"] + number)

    def step(number):
        return lower(docs.map_partitions(add, dask.delayed(number), meta=docs._meta)).steps[0]

    assert step(2).action(docs.compute())["n"].tolist() == list(range(2, 32))
    assert step(2).fingerprint == step(2).fingerprint != step(3).fingerprint


def test_isin_is_the_same_program_in_every_process(folder):
    code = (
        "import sys, curator_df as cdf; from curator_df.core.planning.lowering import lower; df = cdf.read_jsonl(sys.argv[1]);"
        "print(*[lower(df[df['lang'].isin(values)]).fingerprint for values in"
        " (['de', 'fr', 'it'], {'de', 'fr', 'it'}, ['de', None, 3])])"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code, str(folder / "in.jsonl")],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    ("step", "names"),
    [
        (lambda df: df.rename(columns={"n": "m"}), ["rename"]),
        (lambda df: df.dropna()[["n"]], ["dropna", "columns"]),
        (lambda df: df[df["n"] > 3], ["filter"]),
        (lambda df: df.add_prefix("x_"), ["add_prefix"]),
        (lambda df: df.explode("words"), ["explode"]),
        (lambda df: df.map_partitions(double), ["map_partitions(double)"]),
    ],
)
def test_a_step_is_called_what_the_user_wrote(docs, step, names):
    assert [each.name for each in lower(step(docs)).steps] == names
