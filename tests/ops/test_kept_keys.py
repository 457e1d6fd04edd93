# SPDX-License-Identifier: Apache-2.0
"""Keys of rows, kept for later runs that drop equal rows, and rows of another table that a drop compares with."""

import random

import pandas as pd
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.runner import run
from curator_df.core.tasks.task import Job
from curator_df.exchange import exchange_plan
from tests.core.runner.fake_client import inline_cluster
from tests.ops.test_duplicates import docs_of, kept


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


@pytest.fixture
def old_and_new(tmp_path):
    """Return two tables with common texts, and the rows of the second."""
    choices = random.Random(7)
    rows = [{"id": n, "text": f"text {choices.randrange(300)}", "score": choices.randrange(9)} for n in range(900)]
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    return docs_of(tmp_path / "old", rows[:300]), docs_of(tmp_path / "new", rows[300:]), rows


def plain_kept(rows, keep):
    old, new = pd.DataFrame(rows[:300]), pd.DataFrame(rows[300:])
    fresh = new[~new.text.isin(old.text)]
    if keep == cdf.best("score"):
        return sorted(fresh.sort_values("score", ascending=False, kind="stable").drop_duplicates("text").id)
    return fresh.drop_duplicates("text", keep={"none": False}.get(keep, keep)).id.tolist()


@pytest.mark.parametrize("keep", ["first", "last", "none", cdf.best("score")], ids=str)
@pytest.mark.parametrize("range_bytes", [10**9, 2_000])
def test_rows_with_a_kept_key_go_whatever_the_cut(tmp_path, monkeypatch, old_and_new, keep, range_bytes):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", range_bytes)
    if range_bytes < 10**9:
        monkeypatch.setattr(exchange_plan, "MOST_DIRECT_READS", 1)
        monkeypatch.setattr(exchange_plan, "choose_reducers", lambda *_: 5)
    old, new, rows = old_and_new
    kept(old.curate.drop_exact_duplicates(keep_keys=tmp_path / "keys"), tmp_path / "clean")
    against = cdf.read_parquet(str(tmp_path / "keys"))
    expected = plain_kept(rows, keep)
    by_keys = new.curate.drop_exact_duplicates(keep=keep, against=against)
    assert kept(by_keys, tmp_path / "by_keys")[0] == expected
    by_texts = new.curate.drop_exact_duplicates(keep=keep, against=old)
    assert kept(by_texts, tmp_path / "by_texts")[0] == expected


def test_keys_are_those_of_the_kept_rows_with_their_place(tmp_path, old_and_new):
    old, _, rows = old_and_new
    docs = old.curate.keep_where("score < 8").curate.drop_exact_duplicates(keep_keys=tmp_path / "keys")
    ids, _ = kept(docs.curate.keep_where("score < 5"), tmp_path / "clean")
    keys = pq.read_table(tmp_path / "keys").to_pandas()
    table = pd.DataFrame(rows[:300])
    assert len(keys) == table[table.score < 8].text.nunique() == keys.content_key.nunique()
    assert keys.content_key.map(len).unique().tolist() == [24]
    assert {path.rpartition("/")[2] for path in keys.file} == {"0.jsonl", "1.jsonl", "2.jsonl"}
    assert not keys.duplicated(["file", "offset"]).any()
    assert cdf.read_receipt(tmp_path / "keys").rows_written == len(keys) > len(ids)


def test_rejects_and_the_receipt_name_where_the_match_is(tmp_path, old_and_new):
    old, new, rows = old_and_new
    kept(old.curate.drop_exact_duplicates(keep_keys=tmp_path / "keys"), tmp_path / "clean")
    against = cdf.read_parquet(str(tmp_path / "keys"))
    docs = new.curate.drop_exact_duplicates(against=against, count_into="copies")
    ids, receipt = kept(docs, tmp_path / "fresh", rejects=tmp_path / "rejects")
    rejects = pq.read_table(tmp_path / "rejects").to_pandas()
    matched = rejects[rejects.reject_matched_file.str.contains("/keys/")]
    texts = {row["text"] for row in rows[:300]}
    assert sorted(matched.id) == [row["id"] for row in rows[300:] if row["text"] in texts]
    places = {text: place for place, text in enumerate(pd.DataFrame(rows[:300]).text.drop_duplicates())}
    assert matched.reject_matched_offset.tolist() == matched.text.map(places).tolist()
    [exchange] = receipt.exchanges
    assert (exchange.keys, exchange.unique) == (600, len(ids))
    assert exchange.details == {
        "against": len(places),
        "matched": len(matched),
        "folders": [str(tmp_path / "keys")],
    }
    assert f"{len(matched)} rows matching one of {len(places)} kept rows in {tmp_path / 'keys'}" in str(exchange)
    fresh = pd.DataFrame(rows[300:])
    copies = fresh[~fresh.text.isin(texts)].groupby("text").size()
    table = pq.read_table(tmp_path / "fresh").to_pandas()
    assert table.set_index("text").copies.to_dict() == copies.to_dict()


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (
            {"normalize": "case_and_spaces"},
            r"1 column with normalize=None, .* 1 column with normalize='case_and_spaces'",
        ),
        ({"subset": ["text", "score"]}, r"1 column with normalize=None, .* 2 columns with normalize=None"),
    ],
)
def test_keys_of_other_settings_are_an_error_that_names_both(tmp_path, old_and_new, options, found):
    old, new, _ = old_and_new
    kept(old.curate.drop_exact_duplicates(keep_keys=tmp_path / "keys"), tmp_path / "clean")
    against = cdf.read_parquet(str(tmp_path / "keys"))
    with pytest.raises(errors.SchemaError, match=found):
        kept(new.curate.drop_exact_duplicates(against=against, **options), tmp_path / "fresh")


def test_what_cannot_be_keys_is_refused_at_once(tmp_path, old_and_new):
    old, new, _ = old_and_new
    with pytest.raises(errors.SchemaError, match=r"'content_key' has dtype .* does not hold keys"):
        new.curate.drop_exact_duplicates(against=old.assign(content_key=old.text))
    with pytest.raises(errors.ColumnError, match=r"against=.*'text'"):
        new.curate.drop_exact_duplicates(against=old[["id"]])
    with pytest.raises(errors.ParameterError, match="inside"):
        kept(new.curate.drop_exact_duplicates(keep_keys=tmp_path / "out/keys"), tmp_path / "out")
    with pytest.raises(errors.ParameterError, match="groups= already says which rows are duplicates"):
        new.curate.drop_exact_duplicates(against=old, groups=tmp_path)


def test_an_interrupted_run_resumes_its_keys_too(tmp_path, monkeypatch, old_and_new):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 2_000)
    old, new, rows = old_and_new
    docs = new.curate.drop_exact_duplicates(against=old, keep_keys=tmp_path / "keys")
    dispatch, passed = run.Dispatcher.run, []

    def stop(dispatcher, pieces):
        job = dispatcher.job
        if isinstance(job, Job) and job.fork.branches[0].sink.folder.url == str(tmp_path / "out"):
            dispatch(dispatcher, (piece for piece in pieces if piece.number < 2))
            passed.append(True)
            raise KeyboardInterrupt
        dispatch(dispatcher, pieces)

    with monkeypatch.context() as patched:
        patched.setattr(run.Dispatcher, "run", stop)
        with pytest.raises(KeyboardInterrupt):
            cdf.write_parquet(docs, tmp_path / "out")
    assert passed
    with pytest.raises(errors.InputError):
        cdf.read_receipt(tmp_path / "keys")
    ids, receipt = kept(docs, tmp_path / "out", on_existing="resume")
    assert ids == plain_kept(rows, "first")
    assert receipt.ranges_resumed == 2
    assert cdf.read_receipt(tmp_path / "keys").ranges_resumed == 2
    assert pq.read_table(tmp_path / "keys").num_rows == len(ids)
