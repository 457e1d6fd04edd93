# SPDX-License-Identifier: Apache-2.0
"""Signatures kept as a column: rows are compared by them, and with those of other tables."""

import dataclasses

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.planning.lowering import lower
from curator_df.core.runner import run
from curator_df.kernels.minhash import stored_signatures
from curator_df.kernels.minhash.jaccard import jaccard_similarities
from curator_df.kernels.minhash.scheme import Scheme
from curator_df.kernels.minhash.signatures import minhash_signatures
from curator_df.kernels.minhash.stored_signatures import (
    pack_signatures,
    similarity_estimates,
    sketch_id,
    unpack_signatures,
)
from tests.core.runner.fake_client import inline_cluster
from tests.ops.plain_near_duplicates import plain_groups, plain_matches
from tests.ops.test_near_duplicates import ids_in, variants, write_rows

WORDS = Scheme("words", 3, num_bands=12, minhashes_per_band=3, normalize="case_and_spaces", seed=3)


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


@pytest.fixture
def small_ranges(monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 4_000)


def keep_signatures(docs, folder, scheme=WORDS):
    cdf.write_parquet(cdf.add_minhash(docs, scheme=scheme)[["id", "minhash"]], folder)
    return cdf.read_parquet(str(folder))


@pytest.mark.parametrize("use_64_bit_hash", [False, True])
def test_what_is_stored_is_the_signature(use_64_bit_hash):
    scheme = dataclasses.replace(WORDS, use_64_bit_hash=use_64_bit_hash)
    texts = pd.Series(
        ["one two three four", None, "", "One  two three four", "one two three four"], dtype="string[pyarrow]"
    )
    column = pack_signatures(texts, scheme)
    stored = unpack_signatures(column.iloc[1:], scheme)
    assert (stored.signatures == minhash_signatures(texts, scheme)[1:]).all()
    contents, signatures = unpack_signatures(column, scheme)
    assert (signatures[0] == signatures[3]).all()
    assert (contents[0] != contents[3]).any()
    assert (contents[0] == contents[4]).all()
    assert (contents[1] != contents[2]).all()
    assert column.map(len).unique().tolist() == [24 + 36 * (8 if use_64_bit_hash else 4)]


def test_other_bands_may_use_fewer_hashes():
    column = pack_signatures(pd.Series(["one two three four"], dtype="string[pyarrow]"), WORDS)
    fewer = dataclasses.replace(WORDS, num_bands=5, minhashes_per_band=7)
    assert unpack_signatures(column, fewer).signatures.shape == (1, 36)
    with pytest.raises(errors.SchemaError, match=r"signatures of 36 hashes, but num_bands=37 .* needs 37"):
        unpack_signatures(column, dataclasses.replace(WORDS, num_bands=37, minhashes_per_band=1))


@pytest.mark.parametrize(
    "changed", [{"seed": 4}, {"ngram_size": 4}, {"normalize": None}, {"ngrams": "characters"}], ids=str
)
def test_signatures_made_in_another_way_are_an_error(changed):
    column = pack_signatures(pd.Series(["one two three four"], dtype="string[pyarrow]", name="minhash"), WORDS)
    with pytest.raises(errors.SchemaError, match=r"made with other parameters .* Use the scheme= with"):
        unpack_signatures(column, dataclasses.replace(WORDS, **changed))


def test_signatures_of_an_earlier_version_are_an_error_that_says_so(monkeypatch):
    monkeypatch.setattr(stored_signatures, "sketch_id", lambda scheme: sketch_id(scheme, 1))
    column = pack_signatures(pd.Series(["one two three four"], dtype="string[pyarrow]", name="minhash"), WORDS)
    monkeypatch.undo()
    with pytest.raises(
        errors.SchemaError, match=r"signatures that an earlier version of curator_df computed .* add_minhash"
    ):
        unpack_signatures(column, WORDS)


def test_estimates_are_unbiased():
    chance = np.random.default_rng(5)
    texts, similarities = [], []
    for _ in range(300):
        words = chance.integers(0, 10**6, 60).astype(str)
        changed = words.copy()
        changed[chance.integers(0, 60)] = "other"
        texts += [" ".join(words), " ".join(changed)]
        sets = [{" ".join(row[at : at + 3]) for at in range(58)} for row in (words, changed)]
        similarities.append(len(sets[0] & sets[1]) / len(sets[0] | sets[1]))
    signatures = minhash_signatures(pd.Series(texts, dtype="string[pyarrow]"), WORDS)
    errors_found = similarity_estimates(signatures[::2], signatures[1::2]) - np.array(similarities)
    deviation = np.sqrt(0.9 * 0.1 / WORDS.num_hashes)
    assert abs(errors_found.mean()) < 4 * deviation / np.sqrt(300)
    assert 0.5 * deviation < errors_found.std() < 1.5 * deviation


@pytest.mark.usefixtures("small_ranges")
def test_a_table_with_signatures_gives_the_same_rows(tmp_path):
    texts = [*variants(500, seed=7), None]
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", texts))
    kept = cdf.checkpoint(cdf.add_minhash(docs, scheme=WORDS), tmp_path / "kept")
    clean = cdf.drop_near_duplicates(kept, scheme=WORDS, jaccard_threshold=0.6, signatures="minhash")
    cdf.write_parquet(clean.drop(columns="minhash"), tmp_path / "out")
    dropped = plain_matches(texts, WORDS, 0.6)
    assert ids_in(tmp_path / "out") == [number for number in range(len(texts)) if number not in dropped]
    assert pq.read_table(tmp_path / "out").column_names == ["id", "text", "score"]


@pytest.mark.usefixtures("small_ranges")
def test_signatures_alone_are_enough(tmp_path):
    texts = variants(500, seed=8)
    signatures = keep_signatures(cdf.read_jsonl(write_rows(tmp_path / "in", texts)), tmp_path / "kept")
    groups = cdf.find_near_duplicates(
        signatures, text=None, signatures="minhash", scheme=WORDS, jaccard_threshold=0.6, workdir=tmp_path / "work"
    )
    table, rows = groups.compute(), signatures.compute()
    found = table[~table.kept]
    hashes = minhash_signatures(pd.Series(texts, dtype="string[pyarrow]"), WORDS)
    first = hashes[rows.loc[found.address].id.to_numpy(dtype=int)]
    second = hashes[rows.loc[found.matched_address].id.to_numpy(dtype=int)]
    other = found.jaccard.to_numpy() != 1.0  # of the same texts it is known, not estimated
    assert found.jaccard.to_numpy()[other] == pytest.approx(similarity_estimates(first, second)[other])
    assert other.sum() > 50
    assert found.jaccard.min() >= 0.6
    assert cdf.describe_near_duplicates(groups).rows_in_groups == len(table)
    cdf.write_parquet(cdf.drop_near_duplicates(signatures, groups=groups), tmp_path / "out")
    assert len(ids_in(tmp_path / "out")) == len(texts) - len(found)


def split_at(texts, place):
    return texts[:place], texts[place:]


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize("keep", ["first", pytest.param("last", marks=pytest.mark.proof), "longest"])
def test_rows_similar_to_kept_signatures_go(tmp_path, keep):
    """Without comparing, what goes is what goes from both tables together, where the kept ones come first and stay."""
    old, new = split_at(variants(600, seed=9), 250)
    before = cdf.read_jsonl(write_rows(tmp_path / "old", old))
    against = keep_signatures(before, tmp_path / "kept")
    docs = cdf.read_jsonl(write_rows(tmp_path / "new", new))
    clean = cdf.drop_near_duplicates(docs, scheme=WORDS, jaccard_threshold=None, keep=keep, against=against)
    receipt = cdf.write_parquet(clean, tmp_path / "out")
    names = plain_groups([*old, *new], WORDS, None, anchors=10**9)
    is_new = np.arange(len(names)) >= len(old)
    with_old = np.isin(names, names[~is_new])
    expected = {int(name) for name in names[is_new & ~with_old]}
    stayed = [number + len(old) for number in ids_in(tmp_path / "out")]
    assert len(stayed) == len(expected) > 20
    assert {int(names[number]) for number in stayed} == expected
    assert (with_old & is_new).sum() > 50
    said = receipt.exchanges[0]
    assert (said.keys, said.unique, said.details["against"]) == (len(new), len(expected), len(old))


@pytest.mark.usefixtures("small_ranges")
def test_the_match_in_the_other_table_is_named(tmp_path):
    old, new = split_at(variants(600, seed=10), 250)
    against = keep_signatures(cdf.read_jsonl(write_rows(tmp_path / "old", old)), tmp_path / "kept")
    docs = cdf.read_jsonl(write_rows(tmp_path / "new", new))
    call = {"scheme": WORDS, "jaccard_threshold": 0.6, "against": against, "workdir": tmp_path / "work"}
    groups = cdf.find_near_duplicates(docs, id="id", **call)
    found, rows = groups.compute(), docs.compute()
    in_old = found[found.matched_file.str.startswith(str(tmp_path / "kept"))]
    assert len(in_old) > 20
    assert not in_old.kept.any()
    hashes = minhash_signatures(pd.Series([*old, *new], dtype="string[pyarrow]"), WORDS)
    for line in in_old.itertuples():
        table = pq.read_table(line.matched_file)
        one = hashes[table["id"][line.matched_offset].as_py()]
        two = hashes[len(old) + rows.loc[line.address].id]
        assert line.matched_id == table["id"][line.matched_offset].as_py()
        ends = [old[table["id"][line.matched_offset].as_py()], new[rows.loc[line.address].id]]
        series = pd.Series(ends, dtype="string[pyarrow]")
        exact = jaccard_similarities(series, series, np.array([[0, 1]]), WORDS)[0]
        # The text of the row in the other table is known if a row of this table has it, too.
        known = [exact] if ends[0] in new else [1.0] if ends[0] == ends[1] else []
        assert min(abs(line.jaccard - value) for value in [(one == two).mean(), *known]) < 1e-9
        assert line.jaccard >= 0.6
    report = cdf.describe_near_duplicates(groups)
    assert report.rows_in_groups == len(found)
    assert report.rows_going == int((~found.kept).sum())
    cdf.write_parquet(cdf.drop_near_duplicates(docs, groups=groups), tmp_path / "out")
    assert len(ids_in(tmp_path / "out")) == len(new) - report.rows_going


def test_another_index_is_another_question(tmp_path):
    docs = cdf.read_jsonl(write_rows(tmp_path / "new", variants(60, seed=11)))
    one = keep_signatures(docs, tmp_path / "one")
    two = keep_signatures(cdf.read_jsonl(write_rows(tmp_path / "old", variants(40, seed=12))), tmp_path / "two")
    groups = cdf.find_near_duplicates(docs, scheme=WORDS, against=one, workdir=tmp_path / "work")
    with pytest.raises(errors.ParameterError, match="groups= were found with"):
        cdf.drop_near_duplicates(docs, scheme=WORDS, against=two, groups=groups)
    sketched = cdf.add_minhash(docs, scheme=WORDS)
    ways = [{}, {"against": one}, {"against": two}, {"signatures": "minhash"}, {"signatures": "minhash", "text": None}]
    asked = {lower(cdf.drop_near_duplicates(sketched, scheme=WORDS, **way)).fingerprint for way in ways}
    assert len(asked) == len(ways)


def test_what_cannot_be_asked_is_refused(tmp_path):
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", ["a", "b"]))
    kept = keep_signatures(docs, tmp_path / "kept")
    with pytest.raises(errors.ParameterError, match="text=None needs signatures="):
        cdf.drop_near_duplicates(docs, text=None)
    with pytest.raises(errors.ParameterError, match="keep='longest' needs the text column"):
        cdf.drop_near_duplicates(kept, text=None, signatures="minhash", scheme=WORDS, keep="longest")
    with pytest.raises(errors.SchemaError, match=r"'text' has dtype .* does not hold signatures"):
        cdf.drop_near_duplicates(docs, signatures="text")
    with pytest.raises(errors.ColumnError, match="against="):
        cdf.drop_near_duplicates(docs, against=docs)
    with pytest.raises(errors.SchemaError, match="signatures of 36 hashes"):
        cdf.drop_near_duplicates(docs, against=kept)
