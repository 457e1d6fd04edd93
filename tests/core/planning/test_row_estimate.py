# SPDX-License-Identifier: Apache-2.0
"""The number of rows that an exchange is planned for, against the number there is."""

import gzip
import json

import pandas as pd
import pytest

import curator_df as cdf
from curator_df.core.planning.lowering import origin_of
from curator_df.core.planning.row_estimate import estimate_rows


def estimate(docs, range_bytes=50_000):
    source = origin_of(docs).source
    return estimate_rows(source, source.cut(range_bytes))


def lines(rows, size):
    return "".join(json.dumps({"id": n, "text": "word " * size}) + "\n" for n in range(rows))


@pytest.mark.parametrize("size", [1, 20, 500])
def test_rows_of_json_lines_within_a_factor_of_two(tmp_path, size):
    rows = 200_000 // size
    (tmp_path / "a.jsonl").write_text(lines(rows, size))
    assert rows / 2 < estimate(cdf.read_jsonl(tmp_path / "a.jsonl")) < rows * 2


def test_rows_of_compressed_files_within_a_factor_of_the_compression(tmp_path):
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.write(lines(5_000, 20))
    assert estimate(cdf.read_jsonl(tmp_path / "a.jsonl.gz")) > 0


def test_rows_of_parquet_are_in_the_footers(tmp_path):
    for number in range(30):
        pd.DataFrame({"n": range(1_000)}).to_parquet(tmp_path / f"{number:02d}.parquet")
    assert estimate(cdf.read_parquet(tmp_path)) == 30_001


def test_input_without_a_whole_row_is_planned_for_all_the_same(tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "long.jsonl").write_text(lines(1, 2_000_000))
    assert estimate(cdf.read_jsonl(tmp_path / "long.jsonl")) in (1, 2)
    both = cdf.read_jsonl([tmp_path / "empty.jsonl", tmp_path / "long.jsonl"])
    assert estimate(both) >= 1


def test_one_long_row_does_not_stand_for_all_others(tmp_path):
    short = lines(20_000, 20)
    (tmp_path / "a.jsonl").write_text(lines(1, 700_000) + short)
    assert 15_000 < estimate(cdf.read_jsonl(tmp_path / "a.jsonl"), len(short) // 8) < 80_000
