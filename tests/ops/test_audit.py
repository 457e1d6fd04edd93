# SPDX-License-Identifier: Apache-2.0
"""Audits of deletions: pairs, similarities and intervals held against the definitions."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import curator_df as cdf
from curator_df import errors
from curator_df.core.runner import run
from curator_df.kernels.minhash.jaccard import jaccard_similarities
from curator_df.ops.duplicates.audit import wilson_interval, word_diff
from tests.core.runner.fake_client import inline_cluster
from tests.models.vector_rows import vectors
from tests.ops.test_near_duplicates import WORDS, variants, write_rows


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


def jaccard(left, right):
    return float(jaccard_similarities(pd.Series([left]), pd.Series([right]), np.array([[0, 0]]), WORDS)[0])


def read_at(path, offset):
    with open(path, "rb") as file:
        file.seek(int(offset))
        return json.loads(file.readline())


@pytest.mark.parametrize("linkage", ["direct", "transitive"])
def test_each_pair_is_a_dropped_row_and_the_row_that_is_kept_for_it(tmp_path, monkeypatch, linkage):
    texts = variants(400, seed=6)
    settings = {"scheme": WORDS, "jaccard_threshold": 0.6, "linkage": linkage}
    tables = []
    for files, range_bytes in ((1, 10**9), (3, 3_000)):
        monkeypatch.setattr(run, "SMALL_RANGE_BYTES", range_bytes)
        docs = cdf.read_jsonl(write_rows(tmp_path / f"in{files}", texts, files))
        groups = cdf.find_near_duplicates(docs, workdir=tmp_path / f"work{files}", **settings)
        audit = cdf.audit_duplicates(groups, docs, pairs=60, by="score", max_chars=40)
        found = groups.compute()
        assert audit.deletions == (~found.kept).sum() > 60
        assert len(audit.table) == 60
        kept = {}
        for row in audit.table.itertuples():
            one, two = read_at(row.file, row.offset), read_at(row.other_file, row.other_offset)
            kept[one["id"]] = two["id"]
            assert (row.text, row.other_text) == ((one["text"] or "")[:40], (two["text"] or "")[:40])
            assert row.source == one["score"]
            assert row.recomputed == pytest.approx(jaccard(one["text"], two["text"]))
            assert row.is_duplicate == (row.recomputed >= 0.6)
        rows = found.set_index("address")
        ids = docs.compute()["id"]
        of_table = {ids[a]: ids[g] for a, g, k in zip(rows.index, rows.group, rows.kept, strict=True) if not k}
        assert kept == {number: of_table[number] for number in kept}
        again = cdf.audit_duplicates(cdf.read_receipt(groups).output, docs, pairs=60, by="score", max_chars=40)
        pd.testing.assert_frame_equal(again.table, audit.table)
        other = cdf.audit_duplicates(groups, docs, pairs=60, seed=1)
        assert other.table.offset.tolist() != audit.table.offset.tolist()
        tables.append(audit)
    rates = audit.precision()
    assert rates.index.tolist() == ["all", *sorted(map(str, set(audit.table.source)))]
    assert rates.pairs["all"] == 60 == rates.pairs.iloc[1:].sum()
    assert rates.duplicates["all"] == audit.table.is_duplicate.sum()
    assert (rates.precision["all"] == 1.0) == (linkage == "direct")
    assert (rates.low <= rates.precision).all()
    assert (rates.precision <= rates.high).all()
    whole = cdf.audit_duplicates(groups, docs, pairs=10_000)
    assert len(whole.table) == whole.deletions


def test_verdicts_of_a_reader_replace_verdicts(tmp_path):
    texts = variants(200, seed=6)
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", texts))
    bands = cdf.find_near_duplicates(docs, scheme=WORDS, jaccard_threshold=None, workdir=tmp_path / "work")
    audit = cdf.audit_duplicates(bands, docs, pairs=20)
    assert audit.threshold is None
    assert audit.table.is_duplicate.isna().all()
    assert audit.table.recomputed.notna().all()
    assert audit.precision().pairs["all"] == 0
    rates = audit.precision({0: True, 3: True, 5: False, 7: True})
    assert rates.loc["all", ["pairs", "duplicates", "precision"]].tolist() == [4, 3, 0.75]
    assert rates.loc["all", ["low", "high"]].tolist() == pytest.approx([0.3006, 0.9544], abs=1e-4)
    assert audit.table.is_duplicate.isna().all()
    with pytest.raises(errors.ParameterError, match="has the pair 20, but pairs are numbered from 0 to 19"):
        audit.precision({20: True})


def test_without_a_kept_row_a_row_is_compared_with_the_one_that_it_matched(tmp_path):
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", variants(400, seed=6)))
    groups = cdf.find_near_duplicates(docs, scheme=WORDS, jaccard_threshold=0.6, keep="none", workdir=tmp_path / "work")
    audit, ids = cdf.audit_duplicates(groups, docs, pairs=10_000), docs.compute()["id"]
    found = groups.compute()
    matched = dict(zip(ids[found.address], ids[found.matched_address], strict=True))
    shown = [
        [read_at(row.file, row.offset)["id"], read_at(row.other_file, row.other_offset)["id"]]
        for row in audit.table.itertuples()
    ]
    assert dict(shown) == matched
    assert audit.table.recomputed.tolist() == pytest.approx(audit.table.similarity.tolist())
    assert audit.precision().precision["all"] == 1.0


@pytest.mark.parametrize("label", ["no", float("nan"), 0, None])
def test_a_label_that_is_no_verdict_is_refused(tmp_path, label):
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", ["a b", "a b", "a b"], 1))
    audit = cdf.audit_duplicates(cdf.find_exact_duplicates(docs, workdir=tmp_path / "work"), docs)
    assert audit.precision({0: np.bool_(False)}).duplicates["all"] == 1
    with pytest.raises(errors.ParameterError, match=rf"verdicts= has {label!r} for the pair 1\. Use True if"):
        audit.precision({0: True, 1: label})


def test_a_source_may_have_the_name_of_another_line(tmp_path):
    sources = ["all", "all", "all (source)", "(none)", None, "b"]
    rows = [{"text": "the same text", "site": source} for source in ["first", *sources]]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    docs = cdf.read_jsonl(tmp_path / "in.jsonl")
    groups = cdf.find_exact_duplicates(docs, subset="text", workdir=tmp_path / "work")
    audit = cdf.audit_duplicates(groups, docs, by="site")
    names = ["(none)", "(none) (source)", "all (source)", "all (source) (source)", "b"]
    assert dict(audit.precision().pairs) == dict(zip(["all", *names], [6, 1, 1, 2, 1, 1], strict=True))
    assert re.search(r"^all +6 +6", str(audit), re.MULTILINE)


def test_exact_duplicates_are_compared_by_their_values(tmp_path):
    texts = ["One  text", "one text", "another", "another", None, None]
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", texts))
    groups = cdf.find_exact_duplicates(docs, normalize="case_and_spaces", workdir=tmp_path / "work")
    audit = cdf.audit_duplicates(groups, docs)
    assert audit.measure == "equal"
    assert audit.table.recomputed.tolist() == [1.0] * 3
    assert audit.table["diff"].tolist() == ["[-one-] {+One+} text", "another", ""]
    none = cdf.find_exact_duplicates(docs, keep="none", workdir=tmp_path / "none")
    audit = cdf.audit_duplicates(none, docs)
    assert audit.table.recomputed.tolist() == [1.0] * 4
    assert (
        (audit.table[["file", "offset"]].to_numpy() != audit.table[["other_file", "other_offset"]].to_numpy())
        .any(axis=1)
        .all()
    )


def test_rows_like_another_table_are_unknown(tmp_path):
    texts = ["to be or not to be that is the question", "another text of some words that nobody repeats"]
    old = cdf.read_jsonl(write_rows(tmp_path / "old", texts, 1)).pipe(cdf.add_minhash, scheme=WORDS)
    old = cdf.checkpoint(old[["id", "minhash"]], tmp_path / "index")
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", [texts[0], "x y z", "x y z"], 1))
    docs = cdf.checkpoint(docs.pipe(cdf.add_minhash, scheme=WORDS), tmp_path / "new")
    groups = cdf.find_near_duplicates(docs, scheme=WORDS, signatures="minhash", against=old, workdir=tmp_path / "work")
    audit = cdf.audit_duplicates(groups, docs)
    assert audit.table.is_duplicate.isna().tolist() == [True, False]
    assert audit.table.other_file.isna().tolist() == [True, False]
    assert audit.precision().loc["all", ["pairs", "duplicates"]].tolist() == [1, 1]
    audit.save(tmp_path / "audit.html")
    assert "another table" in (tmp_path / "audit.html").read_text()


def test_semantic_duplicates_are_compared_by_their_vectors(tmp_path):
    pytest.importorskip("sklearn", reason="needs the models extra (scikit-learn is not installed)")
    numbers = vectors(300, seed=2)
    lists = pa.array(numbers.tolist(), pa.list_(pa.float32(), numbers.shape[1]))
    rows = {"id": np.arange(300), "text": [f"text {n}" for n in range(300)], "embedding": lists}
    pq.write_table(pa.table(rows), tmp_path / "in.parquet", row_group_size=50)
    docs = cdf.read_parquet(tmp_path / "in.parquet")
    groups = cdf.find_semantic_duplicates(docs, eps=[0.001, 0.05], num_clusters=2, workdir=tmp_path / "work")
    audit = cdf.audit_duplicates(groups, docs, eps=0.05, pairs=50)
    units = numbers / np.linalg.norm(numbers, axis=1, keepdims=True)
    expected = [
        units[int(a)] @ units[int(b)] for a, b in zip(audit.table.offset, audit.table.other_offset, strict=True)
    ]
    assert audit.table.recomputed.tolist() == pytest.approx(expected, abs=1e-5)
    assert audit.table.is_duplicate.tolist() == [cosine >= 0.95 for cosine in expected]
    with pytest.raises(errors.ParameterError, match="Choose one of them with eps="):
        cdf.audit_duplicates(groups, docs)
    none = cdf.find_semantic_duplicates(docs, eps=0.05, num_clusters=2, keep="none", workdir=tmp_path / "none")
    table = cdf.audit_duplicates(none, docs, pairs=10_000).table
    assert table.recomputed.tolist() == pytest.approx(table.similarity.tolist(), abs=1e-5)
    assert table.is_duplicate.all()
    assert len(table) > 50


def test_the_page_shows_both_texts_and_what_differs(tmp_path):
    left = "<script>alert(1)</script> one two three four five " + " ".join(f"word{n}" for n in range(60))
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", [left, left.replace("five", "FIVE & more")], 1))
    groups = cdf.find_near_duplicates(docs, scheme=WORDS, jaccard_threshold=0.3, workdir=tmp_path / "work")
    audit = cdf.audit_duplicates(groups, docs, by="score")
    audit.save(tmp_path / "audit.html")
    page = (tmp_path / "audit.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<del>FIVE &amp; more</del> <ins>five</ins>" in page
    assert len(re.findall(r"<section class='pair'", page)) == 1
    assert "in.jsonl" in page or "0.jsonl, offset" in page
    assert "<section" in audit._repr_html_()
    assert "<html" not in audit._repr_html_()
    assert "a random sample of 1 deletions" in str(audit)
    with pytest.raises(errors.ParameterError, match=r"must end in \.html"):
        audit.save(tmp_path / "audit.csv")


def test_what_cannot_be_audited_is_refused(tmp_path):
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", ["a", "a"], 1))
    groups = cdf.find_exact_duplicates(docs, workdir=tmp_path / "work")
    with pytest.raises(errors.ParameterError, match="pairs=0 is not a whole number"):
        cdf.audit_duplicates(groups, docs, pairs=0)
    with pytest.raises(errors.ParameterError, match="another table"):
        cdf.audit_duplicates(groups, docs.pipe(cdf.keep_where, "id >= 0"))
    with pytest.raises(errors.ColumnError, match="source"):
        cdf.audit_duplicates(groups, docs, by="source")
    with pytest.raises(errors.ParameterError, match="is for groups that find_semantic_duplicates found"):
        cdf.audit_duplicates(groups, docs, eps=0.1)
    nothing = cdf.read_jsonl(write_rows(tmp_path / "other", ["a", "b"], 1))
    audit = cdf.audit_duplicates(cdf.find_exact_duplicates(nothing, workdir=tmp_path / "none"), nothing, by="score")
    assert (len(audit.table), audit.deletions) == (0, 0)
    assert audit.precision().index.tolist() == ["all"]
    assert "0, a random sample of 0 deletions" in str(audit)


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12), st.integers(1, 4))
def test_a_diff_has_all_words_of_both_texts(one, two, context):
    pieces = word_diff(" ".join(one), " ".join(two), context=context)
    whole = word_diff(" ".join(one), " ".join(two), context=100)
    for side, words in (("left", one), ("right", two)):
        assert " ".join(piece.words for piece in whole if piece.kind in ("same", side)) == " ".join(words)
        assert [p.words for p in pieces if p.kind == side] == [p.words for p in whole if p.kind == side]
    equal = sum(len(piece.words.split()) for piece in whole if piece.kind == "same")
    skipped = sum(int(re.match(r"\d+", piece.words).group()) for piece in pieces if piece.kind == "skipped")
    assert equal == skipped + sum(len(piece.words.split()) for piece in pieces if piece.kind == "same")


def test_long_texts_are_compared_around_their_differences():
    words = [f"w{n}" for n in range(5_000)]
    changed = [*words[:2_500], "new", *words[2_501:]]
    found = word_diff(" ".join(words), " ".join(changed))
    assert [piece.kind for piece in found] == ["skipped", "same", "left", "right", "same", "skipped"]
    assert found[0].words == "2,470 equal words"
    unlike = word_diff(" ".join(words), " ".join(f"v{n}" for n in range(5_000)))
    assert unlike[-1].words == "4,600 and 4,600 more words that differ"


def test_intervals_are_those_of_wilson():
    # R: prop.test(x, n, correct = FALSE)$conf.int
    assert wilson_interval(0, 10)[1:] == pytest.approx((0.0, 0.27753), abs=1e-4)
    assert wilson_interval(10, 10)[1:] == pytest.approx((0.72247, 1.0), abs=1e-4)
    assert wilson_interval(654, 1_018)[1:] == pytest.approx((0.61250, 0.67125), abs=1e-4)
    assert all(np.isnan(value) for value in wilson_interval(0, 0))
