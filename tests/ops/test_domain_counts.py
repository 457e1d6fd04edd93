# SPDX-License-Identifier: Apache-2.0
"""`describe_domains`: exact counts of the largest domains, of one table and of several."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict

import pandas as pd
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.ops.urls import domain_counts
from tests.core.runner.fake_client import inline_cluster

pytest.importorskip("tldextract", reason="needs the extra urls")


def made(rows, domains, seed=1):
    pick = random.Random(seed)
    weights = [1 / (place + 1) for place in range(domains)]
    names = pick.choices(range(domains), weights, k=rows)
    urls = [f"http://{pick.choice(['www.', '', 'a.b.'])}site-{name}.co.uk/{row}" for row, name in enumerate(names)]
    urls[::17] = [None] * len(urls[::17])
    urls[3::17] = ["http://10.0.0.1/"] * len(urls[3::17])
    return [{"url": url, "text": "é" * pick.randint(0, 9), "n": pick.randint(0, 50)} for url in urls]


def expected(rows):
    """Return rows, characters and tokens of each domain, counted one by one."""
    counts = defaultdict(lambda: [0, 0, 0])
    for row in rows:
        host = None if row["url"] is None else row["url"].split("/")[2]
        name = host if host is None or host == "10.0.0.1" else ".".join(host.split(".")[-3:])
        for place, value in enumerate((1, len(row["text"]), row["n"])):
            counts[name][place] += value
    return {name: tuple(values) for name, values in counts.items()}


def counted(table, end=""):
    names = [None if pd.isna(name) else name for name in table["domain"]]
    values = (table[f"{column}{end}"].tolist() for column in ("rows", "characters", "tokens"))
    return dict(zip(names, zip(*values, strict=True), strict=True))


def write(path, rows):
    path.mkdir()
    half = len(rows) // 2
    for name, part in (("a", rows[:half]), ("b", rows[half:])):
        (path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    return cdf.read_jsonl(str(path), blocksize="20kB")


def test_a_pandas_table_is_counted_by_domain_host_or_neither():
    rows = made(3_000, 200)
    found = cdf.describe_domains(pd.DataFrame(rows), top=10_000, token_column="n")
    wanted = expected(rows)
    assert counted(found) == wanted and None in wanted and "10.0.0.1" in wanted
    assert found["rows"].is_monotonic_decreasing
    assert found["share_of_rows"].sum() == pytest.approx(1)
    totals = {"domains": len(wanted), "rows": 3_000, "characters": sum(len(row["text"]) for row in rows)}
    assert found.attrs["totals"] == {**totals, "tokens": sum(row["n"] for row in rows)}


def test_the_largest_are_exact_and_few_columns_come_without_text_and_tokens():
    rows = made(3_000, 500)
    found = cdf.describe_domains(pd.DataFrame(rows)[["url"]], top=5)
    assert found.columns.tolist() == ["domain", "rows", "share_of_rows"]
    most = Counter({name: values[0] for name, values in expected(rows).items()}).most_common(5)
    assert found["rows"].tolist() == [count for _, count in most]
    assert found.attrs["totals"]["domains"] == len(expected(rows))


def test_tables_are_compared_by_the_largest_of_each():
    before = [
        {"url": f"http://{name}.example/{row}", "text": "a"}
        for name, rows in (("a", 5), ("b", 4), ("c", 3))
        for row in range(rows)
    ]
    after = [row for row in before if "a.example" not in row["url"]] + [{"url": "http://d.example", "text": "bb"}]
    found = cdf.describe_domains({"before": pd.DataFrame(before), "after": pd.DataFrame(after)}, top=2)
    assert found["domain"].tolist() == ["a.example", "b.example", "c.example"]
    assert found["rows_before"].tolist() == [5, 4, 3] and found["rows_after"].tolist() == [0, 4, 3]
    assert found["share_of_rows_after"].tolist() == [0, 4 / 8, 3 / 8]
    assert found["characters_after"].tolist() == [0, 4, 3]
    assert found.attrs["totals"]["after"] == {"domains": 3, "rows": 8, "characters": 9}


def test_private_suffixes_divide_domains():
    pages = pd.DataFrame({"url": ["http://a.github.io", "http://b.github.io"]})
    assert cdf.describe_domains(pages)["domain"].tolist() == ["github.io"]
    assert set(cdf.describe_domains(pages, private_suffixes=True)["domain"]) == {"a.github.io", "b.github.io"}


def test_no_rows_give_no_domains():
    assert len(cdf.describe_domains(pd.DataFrame({"url": pd.array([], "string[pyarrow]")}))) == 0


@pytest.mark.parametrize("sort_bytes", [40_000, 64_000_000])
def test_a_run_counts_what_one_process_counts(tmp_path, monkeypatch, sort_bytes):
    monkeypatch.setattr(domain_counts, "SORT_BYTES", sort_bytes)
    rows = made(8_000, 3_000)
    docs = write(tmp_path / "in", rows)
    with inline_cluster("2GB", 1):
        found = cdf.describe_domains(docs, top=100_000, token_column="n", workdir=tmp_path / "work")
        assert counted(found) == expected(rows)
        kept = docs.pipe(cdf.keep_where, "n > 20")
        both = cdf.describe_domains(
            {"all": docs, "kept": kept}, top=100_000, token_column="n", workdir=tmp_path / "work"
        )
    assert counted(both, "_all") == expected(rows)
    fewer = expected([row for row in rows if row["n"] > 20])
    assert counted(both, "_kept") == {**dict.fromkeys(expected(rows), (0, 0, 0)), **fewer}


def test_counts_are_found_again_and_an_interrupted_run_goes_on(tmp_path):
    rows = made(2_000, 300)
    docs = write(tmp_path / "in", rows)
    flag = tmp_path / "fails"

    def may_fail(block):
        if flag.exists() and len(block) and (block["n"] >= 0).all() and "/1500" in " ".join(block["url"].dropna()):
            raise ZeroDivisionError
        return block["n"] >= 0

    flag.touch()
    chain = docs.pipe(cdf.keep_where, may_fail)
    with inline_cluster("2GB", 1):
        with pytest.raises(errors.OperatorError):
            cdf.describe_domains(chain, workdir=tmp_path / "work", token_column="n")
        (home,) = (tmp_path / "work").iterdir()
        flag.unlink()
        found = cdf.describe_domains(chain, workdir=tmp_path / "work", token_column="n", top=10_000)
        assert counted(found) == expected(rows)
        receipt = cdf.read_receipt(home)
        written = {path: path.stat().st_mtime_ns for path in home.glob("part-*.parquet")}
        again = cdf.describe_domains(chain, workdir=tmp_path / "work", token_column="n", top=10_000)
        assert written == {path: path.stat().st_mtime_ns for path in home.glob("part-*.parquet")} and written
    pd.testing.assert_frame_equal(found, again)
    assert receipt.rows_read == 2_000


def test_what_is_wrong_is_said(tmp_path):
    pages = pd.DataFrame({"url": ["http://a.example"], "n": [1.5]})
    with pytest.raises(errors.ParameterError, match="top=0 must be at least 1"):
        cdf.describe_domains(pages, top=0)
    with pytest.raises(errors.ColumnError, match="'link'"):
        cdf.describe_domains(pages, url="link")
    with pytest.raises(errors.SchemaError, match="token_column='n' must be a column of integers, but it holds float64"):
        cdf.describe_domains(pages, token_column="n")
    with pytest.raises(errors.ParameterError, match="was called without a table"):
        cdf.describe_domains({})
    docs = write(tmp_path / "in", [{"url": "http://a.example"}] * 2)
    with pytest.raises(errors.NoClusterError, match="no cluster is running"):
        cdf.describe_domains(docs)
