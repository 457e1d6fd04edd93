# SPDX-License-Identifier: Apache-2.0
"""`join`: rows, order and types as pandas joins them, for a DataFrame and for a table of files; and what it refuses."""

import json
from statistics import fmean

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import curator_df as cdf
from curator_df import errors
from curator_df.core.planning import row_estimate
from curator_df.io.output.spool import Spool
from curator_df.memory.process_cache import release_held
from curator_df.ops.joins import lookup as lookups
from curator_df.ops.joins import stages
from curator_df.ops.joins.keys import key_hashes
from curator_df.ops.joins.lookup import Lookup, distinct
from tests.core.runner.fake_client import inline_cluster
from tests.examples import examples

HOWS = ("left", "inner", "semi", "anti")
DOCS = pd.DataFrame(
    {
        "id": pd.array(["a", "b", None, "d", "a"], "string[pyarrow]"),
        "n": pd.array([1, 2, 3, None, 5], "Int64"),
        "text": pd.array(["one", "two", "three", "four", "five"], "string[pyarrow]"),
    },
    index=pd.Index([3, 10, 20, 30, 41], name="address"),
)
SCORES = pd.DataFrame({"id": ["b", "a", None, "z"], "score": [2, 1, 7, 9], "why": ["x", None, "y", "z"]})


@pytest.fixture(scope="module")
def cluster():
    with inline_cluster(memory="1.5GB", cpus=2) as running:
        yield running


@pytest.fixture(autouse=True)
def _released():
    yield
    release_held()


def table(rows=DOCS, npartitions=2):
    return dd.from_pandas(rows, npartitions=npartitions, sort=False)


def write_rows(folder, rows, files=2):
    """Write rows as JSON Lines; return the table that reads them."""
    folder.mkdir(parents=True)
    for part in range(files):
        mine = rows[part * len(rows) // files : (part + 1) * len(rows) // files]
        (folder / f"{part:02d}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in mine))
    return folder


def expected(left, right, ours, theirs, how, columns):
    """Return (row number, added values) as pandas joins them; null keys match nothing, and the first of equal keys counts."""
    left = left.assign(number=range(len(left)))
    right = right.dropna(subset=theirs).drop_duplicates(theirs)
    pairs = left.dropna(subset=ours).merge(right, how="inner", left_on=ours, right_on=theirs)
    added = dict(zip(pairs["number"], pairs[columns].astype(object).values.tolist(), strict=True))
    rows = range(len(left))
    if how == "left":
        return [(row, added.get(row, [None] * len(columns))) for row in rows]
    if how == "inner":
        return [(row, added[row]) for row in rows if row in added]
    return [(row, []) for row in rows if (row in added) == (how == "semi")]


def found(result, numbers, columns):
    values = result[columns].astype(object).where(result[columns].notna(), None).values.tolist() if columns else None
    return list(zip(numbers, values or [[]] * len(result), strict=True))


KEYS = st.one_of(st.none(), st.integers(-3, 6))
WORDS = st.one_of(st.none(), st.sampled_from(["", "a", "b", "ab", "é", "漢", "a\0"]))


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(KEYS, WORDS), max_size=30),
    st.lists(st.tuples(KEYS, WORDS, st.integers(-9, 9)), max_size=20),
    st.sampled_from(HOWS),
    st.booleans(),
    st.integers(1, 4),
)
def test_a_frame_is_joined_as_pandas_joins_it(left, right, how, both, npartitions):
    ours = ["k", "w"] if both else ["k"]
    theirs = ["key", "w"] if both else ["key"]
    rows = pd.DataFrame(left, columns=["k", "w"]).astype({"k": "Int32", "w": "string"})
    rows.index = pd.Index(np.arange(len(rows)) * 7 + 2, name="address")
    other = pd.DataFrame(right, columns=["key", "w", "value"]).astype({"key": "Int64", "w": "object", "value": "int64"})
    columns = ["value"] if how in ("left", "inner") else []
    asked = {"columns": columns} if columns else {}
    on = dict(zip(ours, theirs, strict=True))
    result = cdf.join(table(rows, npartitions), other, on=on, how=how, duplicates="first", **asked).compute()
    numbers = ((result.index.to_numpy() - 2) // 7).tolist()
    assert found(result, numbers, columns) == expected(rows, other, ours, theirs, how, columns)
    if columns:
        assert result["value"].dtype == pd.Int64Dtype()


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    left=st.lists(st.tuples(KEYS, WORDS), min_size=1, max_size=30),
    right=st.lists(st.tuples(KEYS, WORDS, st.integers(-9, 9)), min_size=1, max_size=20),
    how=st.sampled_from(HOWS),
    bits=st.integers(0, 3),
)
def test_a_table_of_files_is_joined_as_pandas_joins_it(left, right, how, bits, cluster, tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("join")
    monkeypatch.setattr(stages.TableJoin, "bits", bits)
    rows = pd.DataFrame(left, columns=["k", "w"]).astype({"k": "Int64", "w": "string"})
    other = pd.DataFrame(right, columns=["k", "w", "value"]).astype({"k": "Int64", "w": "string", "value": "Int64"})
    dtype = {"k": "int64", "w": "string", "value": "int64"}
    records = [
        [{n: None if pd.isna(v) else v for n, v in row.items()} for row in one.to_dict("records")]
        for one in (rows, other)
    ]
    ours = cdf.read_jsonl(str(write_rows(folder / "a", records[0])), dtype={"k": "int64", "w": "string"})
    theirs = cdf.read_jsonl(str(write_rows(folder / "b", records[1])), dtype=dtype)
    columns = ["value"] if how in ("left", "inner") else []
    asked = {"columns": columns} if columns else {}
    joined = cdf.join(
        cdf.add_ids(ours, into="number", dense=True), theirs, on=["k", "w"], how=how, duplicates="first", **asked
    )
    receipt = cdf.write_parquet(joined, str(folder / "out"), rejects=str(folder / "rejects"))
    result = cdf.read_parquet(str(folder / "out")).compute()
    assert found(result, result["number"].tolist(), columns) == expected(
        rows, other, ["k", "w"], ["k", "w"], how, columns
    )
    assert receipt.rows_read == len(rows) == receipt.rows_written + receipt.rows_dropped
    if receipt.rows_dropped:
        rejects = pd.read_parquet(folder / "rejects")
        assert set(rejects["reject_reason"]) == {"match" if how == "anti" else "no_match"}
        assert set(rejects["reject_rule"]) == {"k, w"}


def test_a_left_join_keeps_rows_order_index_and_types():
    result = cdf.join(table(), SCORES, on="id").compute()
    pd.testing.assert_frame_equal(result[list(DOCS.columns)], DOCS)
    assert result["score"].tolist() == [1, 2, pd.NA, pd.NA, 1]
    assert result["why"].isna().tolist() == [True, False, True, True, True]
    assert (str(result["score"].dtype), str(result["why"].dtype)) == ("Int64", "string")


def test_keys_of_different_widths_are_equal_by_value():
    rows = pd.DataFrame({"k": pd.array([1, 255, 2**63 - 1], "Int64")})
    for dtype in ("uint64", "UInt64", "int64[pyarrow]"):
        other = pd.DataFrame({"k": pd.array([255, 2**63 - 1], dtype)})
        assert cdf.join(table(rows), other, on="k", how="semi").compute()["k"].tolist() == [255, 2**63 - 1]


def test_an_unsigned_key_beyond_the_signed_ones_matches_no_negative_key():
    rows = pd.DataFrame({"k": pd.array([-1, 1], "Int64")})
    other = pd.DataFrame({"k": np.array([2**64 - 1, 1], dtype="uint64")})
    assert cdf.join(table(rows), other, on="k", how="semi").compute()["k"].tolist() == [1]
    unsigned = pd.DataFrame({"k": pd.array([2**64 - 1, 3], "UInt64")})
    assert cdf.join(table(unsigned), other, on="k", how="semi").compute()["k"].tolist() == [2**64 - 1]


def test_another_key_with_the_same_first_half_is_not_taken_for_it():
    hashes = np.array([[5, 1], [5, 7], [5, 9], [8, 0]], dtype=np.uint64)
    held = Lookup(hashes, pa.table({"a": [0, 1, 2, 3]}))
    asked = np.array([[5, 9], [5, 2], [8, 0], [5, 1], [9, 9]], dtype=np.uint64)
    assert held.find(asked, np.ones(5, dtype=bool)).tolist() == [2, -1, 3, 0, -1]
    assert held.find(asked, np.array([False, True, True, True, True])).tolist() == [-1, -1, 3, 0, -1]
    assert held.columns_at(np.array([3, -1]))["a"].tolist() == [3, pd.NA]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=12))
def test_distinct_keeps_the_first_row_of_each_hash(pairs):
    hashes = np.array(pairs, dtype=np.uint64).reshape(-1, 2)
    order, repeated = distinct(hashes, np.arange(len(pairs)))
    assert [pairs[row] for row in order] == sorted(set(pairs))
    assert [pairs.index(pairs[row]) for row in order] == order.tolist()
    assert (repeated is None) == (len(set(pairs)) == len(pairs))
    if repeated is not None:
        assert repeated[0] < repeated[1]
        assert pairs[repeated[0]] == pairs[repeated[1]]


def test_null_keys_have_no_hash_to_compare():
    block = pd.DataFrame({"k": pd.array([1, None], "Int64"), "w": pd.array([None, None], "string")})
    assert key_hashes(block, ("k",), (True,))[1].tolist() == [True, False]
    assert key_hashes(block, ("k", "w"), (True, False))[1].tolist() == [False, False]


def refused(error, match, rows=DOCS, other=SCORES, **arguments):
    with pytest.raises(error, match=match):
        cdf.join(table(rows), other, **{"on": "id", **arguments})


def test_integers_in_a_column_of_objects_do_not_count_as_text():
    numbers = pd.DataFrame({"id": pd.Series([1, 2], dtype=object)})
    refused(errors.SchemaError, r"holds text .*holds integers", other=numbers, how="semi")


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("keys", [["id"], ["n"], ["id", "n"]])
def test_categories_are_equal_by_their_values(how, keys):
    scores = SCORES.assign(n=pd.array([2, 1, 3, None], "Int64"))
    wanted = cdf.join(
        table(), scores, on=keys, how=how, columns=["score"] if how in ("left", "inner") else None
    ).compute()
    assert len(wanted) >= 1
    kinds = dict.fromkeys(keys, "category")
    for ours, theirs in ((kinds, {}), ({}, kinds), (kinds, kinds)):
        made = table(DOCS.astype(ours)).pipe(
            cdf.join, scores.astype(theirs), on=keys, how=how, columns=["score"] if "score" in wanted else None
        )
        pd.testing.assert_frame_equal(made.compute().astype(wanted.dtypes), wanted)


def test_added_categories_keep_large_integers(cluster, tmp_path):
    large = pd.CategoricalDtype([2**60 + 1, 5])
    rows = [{"id": "a", "score": 2**60 + 1}, {"id": "b", "score": None}]
    other = pd.DataFrame(rows).astype({"score": "Int64"})
    other["score"] = pd.Categorical([2**60 + 1, None], dtype=large)
    docs = cdf.read_jsonl(str(write_rows(tmp_path / "a", [{"id": "a"}, {"id": "b"}])))
    tables = cdf.read_jsonl(str(write_rows(tmp_path / "b", rows)), dtype={"score": "Int64"}).astype({"score": large})
    for one in (other, tables):
        assert cdf.join(docs, one, on="id").compute()["score"].tolist() == [2**60 + 1, pd.NA]


def test_unsigned_categories_beyond_the_signed_ones_match_no_negative_key():
    rows = pd.DataFrame({"k": pd.Series([2**64 - 1, 1, None], dtype="UInt64").astype("category")})
    other = pd.DataFrame({"k": [-1, 1]})
    assert cdf.join(table(rows, 1), other, on="k", how="semi").compute()["k"].tolist() == [1]
    assert cdf.join(table(other, 1), rows, on="k", how="semi").compute()["k"].tolist() == [1]


def test_categories_that_cannot_be_keys_are_refused():
    halves = DOCS.assign(n=pd.Categorical([0.5, 1.5, None, 2.5, 0.5]))
    refused(
        errors.SchemaError, r"'n' of the table holds categories of float64, but keys must be", halves, on={"n": "score"}
    )
    numbers = DOCS.assign(n=DOCS["n"].astype("category"))
    refused(errors.SchemaError, r"'n' of the table holds integers \(category\), but 'id'", numbers, on={"n": "id"})


def test_categories_that_are_known_only_in_a_run_are_checked_in_it():
    later = table().assign(n=table()["n"].astype("category"))
    made = cdf.join(later, SCORES, on={"n": "id"}, how="semi")
    with pytest.raises(
        errors.SchemaError, match=r"key 'n' was taken for text, but it holds categories of \w+, so no row"
    ):
        made.compute()
    texts = table().assign(id=table()["id"].astype("category"))
    assert cdf.join(texts, SCORES, on="id", how="semi").compute()["n"].tolist() == [1, 2, 5]


@pytest.mark.parametrize("values", [[], [None, None], np.array([], dtype="datetime64[ns]"), pd.Categorical([])])
@pytest.mark.parametrize("key", ["id", "n"])
def test_a_list_without_ids_matches_nothing_whatever_its_type(values, key):
    ids = pd.DataFrame({"other": values})
    assert len(cdf.join(table(), ids, on={key: "other"}, how="anti").compute()) == len(DOCS)
    assert len(cdf.join(table(), ids, on={key: "other"}, how="semi").compute()) == 0
    floats = DOCS.assign(f=0.5)
    refused(errors.SchemaError, "'f' of the table holds float64, but keys must be", floats, ids, on={"f": "other"})


def test_a_csv_file_of_a_header_alone_matches_nothing(cluster, tmp_path):
    (tmp_path / "ids.csv").write_text("id,score\n")
    docs = cdf.read_jsonl(str(write_rows(tmp_path / "a", [{"id": 1, "text": "x"}, {"id": 2, "text": "y"}])))
    joined = cdf.join(docs, cdf.read_csv(str(tmp_path / "ids.csv")), on="id", columns=["score"])
    assert joined.compute()["score"].isna().tolist() == [True, True]
    (tmp_path / "ids.csv").write_text("id,score\nx,1\n")
    with pytest.raises(errors.SchemaError, match=r"integers \(Int64\), but 'id' of the other table holds text"):
        cdf.join(docs, cdf.read_csv(str(tmp_path / "ids.csv")), on="id")


def test_added_columns_may_have_the_names_of_the_working_files(cluster, tmp_path):
    names = ["__low__", "__row__", "__order__", "address", "key 0", "_curator"]
    rows = [{"id": key, **{name: place for place, name in enumerate(names)}} for key in "ab"]
    docs = cdf.read_jsonl(str(write_rows(tmp_path / "a", [{"id": "b"}, {"id": None}])))
    other = cdf.read_jsonl(str(write_rows(tmp_path / "b", rows)))
    for one in (other, other.compute()):
        joined = cdf.join(docs, one, on="id").compute()
        assert joined[names].iloc[0].tolist() == list(range(len(names)))
        assert joined[names].iloc[1].isna().all()
        keyed = cdf.join(docs.assign(__row__=1), one, on=["id", "__row__"], how="semi")
        assert keyed.compute()["id"].tolist() == ["b"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            [b"a", b"b"],
            r"the key 'id' of the other table holds binary\[pyarrow\], but the key of this table holds text",
        ),
        ([1, "a"], "differ in type, or that Arrow cannot hold"),
        ([["a"], ["b"]], "the key 'id' of the other table holds list"),
    ],
)
def test_objects_that_are_not_text_are_no_keys(values, said):
    refused(errors.SchemaError, said, other=pd.DataFrame({"id": pd.Series(values, dtype=object), "score": 1}))


@pytest.mark.parametrize("values", [[2**70, 1], [1 + 2j, 0], ["x", 1]])
def test_columns_that_arrow_cannot_hold_are_refused(values):
    refused(errors.SchemaError, "Arrow cannot hold", other=SCORES[:2].assign(score=pd.Series(values, dtype=object)))


def test_columns_need_names_of_their_own():
    for odd in ([["id", 5]], [["id", "s", "s"]]):
        other = pd.DataFrame([[1] * len(odd[0])], columns=odd[0])
        refused(errors.ColumnError, "names are not strings, or are used twice", other=other)


def test_keys_that_cannot_match_are_refused():
    refused(errors.SchemaError, r"'n' of the table holds integers \(Int64\), but 'id' .* holds text", on={"n": "id"})
    floats = DOCS.assign(n=DOCS["n"].astype("Float64"))
    refused(errors.SchemaError, "'n' of the table holds Float64, but keys must be text", floats, on={"n": "score"})
    refused(errors.SchemaError, "holds booleans", DOCS.assign(n=True), on={"n": "score"})
    refused(errors.ColumnError, "'idd'; the table has: .*Did you mean 'id'", on="idd")
    refused(errors.ColumnError, "the other table needs the column 'doc'", on={"id": "doc"})
    refused(errors.ParameterError, "names no column", on=[])
    refused(errors.ParameterError, "names a column twice", on=["id", "id"])


def test_columns_are_never_overwritten():
    other = SCORES.rename(columns={"why": "text"})
    refused(errors.ColumnError, r"overwrite 'text'.*columns=\['score'\], or set suffix='_other'", other=other)
    result = cdf.join(table(), other, on="id", suffix="_other")
    assert list(result.columns) == ["id", "n", "text", "score", "text_other"]
    refused(errors.ColumnError, "Use another suffix", DOCS.assign(text_b="x"), other, suffix="_b")
    assert list(cdf.join(table(), other, on="id", columns="score").columns) == ["id", "n", "text", "score"]
    refused(errors.ColumnError, "the other table needs the column 'scor'", columns=["scor"])
    refused(errors.ParameterError, "adds no columns, so columns= has no meaning", how="semi", columns=["score"])
    refused(errors.ParameterError, "adds no columns, so suffix= has no meaning", how="anti", suffix="_b")


def test_a_repeated_key_is_named_with_its_rows():
    other = pd.concat([SCORES, SCORES.iloc[:1].assign(score=8)], ignore_index=True)
    refused(
        errors.ParameterError, "the key 'b' is in several rows of the other table, such as row 0 and row 4", other=other
    )
    assert cdf.join(table(), other, on="id", duplicates="first").compute()["score"].tolist() == [1, 2, pd.NA, pd.NA, 1]
    assert len(cdf.join(table(), other, on="id", how="anti").compute()) == 2


@pytest.mark.parametrize(
    ("dtypes", "shown"),
    [
        ({"k": "int64"}, "1"),
        ({"k": "category"}, "1"),
        ({"k": "int64", "w": "string"}, r"\(1, '1'\)"),
        ({"k": "bool", "w": "Int64"}, r"\(True, 1\)"),
    ],
)
def test_a_repeated_key_is_shown_as_a_plain_value(dtypes, shown):
    other = pd.DataFrame({name: [1, 1] for name in dtypes}).astype(dtypes)
    refused(errors.ParameterError, rf"the key {shown} is in several rows", other, other.assign(a=1), on=list(dtypes))


def test_a_repeated_number_in_files_is_shown_as_a_plain_value(cluster, tmp_path):
    docs = cdf.read_jsonl(str(write_rows(tmp_path / "a", [{"id": 1}, {"id": 1}])))
    joined = cdf.join(docs, docs.assign(b=1), on="id", columns=["b"])
    with pytest.raises(errors.ParameterError, match="the key 1 is in several rows"):
        cdf.write_parquet(joined, str(tmp_path / "out"))


def test_a_repeated_key_in_files_is_named_with_its_places(cluster, tmp_path):
    rows = [{"id": name, "score": place} for place, name in enumerate(["a", "b", "c", "b"])]
    other = cdf.read_jsonl(str(write_rows(tmp_path / "b", rows)))
    docs = cdf.read_jsonl(str(write_rows(tmp_path / "a", [{"id": "a", "text": "x"}])))
    match = r"the key 'b' is in several rows of the other table, such as \S*/b/00.jsonl offset 24 and \S*/b/01.jsonl offset 24"
    with pytest.raises(errors.ParameterError, match=match):
        cdf.write_parquet(cdf.join(docs, other, on="id"), str(tmp_path / "out"))


def test_a_changed_file_of_the_other_table_is_named_when_a_run_resumes(cluster, tmp_path, monkeypatch):
    folder = write_rows(tmp_path / "b", [{"id": "a", "score": 1}, {"id": "b", "score": 2}])
    docs = cdf.read_jsonl(str(write_rows(tmp_path / "a", [{"id": "a", "text": "x"}, {"id": "b", "text": "y"}])))

    def write(on_existing="raise", **arguments):
        joined = cdf.join(docs, cdf.read_jsonl(str(folder)), on="id", **arguments)
        return cdf.write_parquet(joined, str(tmp_path / "out"), on_existing=on_existing)

    def fail(self):
        raise OSError("the disk is gone")

    with monkeypatch.context() as patched:
        patched.setattr(stages.HeldFiles, "lookup", fail)
        with pytest.raises(Exception, match="the disk is gone"):
            write()
    with pytest.raises(errors.ResumeError, match="duplicates changed from 'raise' to 'first'"):
        write("resume", duplicates="first")
    before = (folder / "01.jsonl").read_text()
    (folder / "01.jsonl").write_text(before.replace("2", "33"))
    with pytest.raises(errors.ResumeError, match=r"the file '\S*/b/01.jsonl' of the other table changed"):
        write("resume")


def test_a_resumed_run_does_not_read_the_other_table_again(cluster, tmp_path, monkeypatch):
    folder = write_rows(tmp_path / "b", [{"id": "a", "score": 1}, {"id": "b", "score": 2}])
    docs = cdf.read_jsonl(str(write_rows(tmp_path / "a", [{"id": "b", "text": "x"}])))
    joined = cdf.join(docs, cdf.read_jsonl(str(folder)), on="id")

    def fail(self):
        raise OSError("the disk is gone")

    with monkeypatch.context() as patched:
        patched.setattr(stages.HeldFiles, "lookup", fail)
        with pytest.raises(Exception, match="the disk is gone"):
            cdf.write_parquet(joined, str(tmp_path / "out"))
    monkeypatch.setattr(stages._RangeOther, "append", fail)
    cdf.write_parquet(joined, str(tmp_path / "out"), on_existing="resume")
    assert cdf.read_parquet(str(tmp_path / "out")).compute()["score"].tolist() == [2]
    assert not (tmp_path / "out/_curator/stages").exists()


def test_steps_of_both_tables_run_before_the_join(cluster, tmp_path):
    other = cdf.read_jsonl(str(write_rows(tmp_path / "b", [{"id": f"d{n}", "score": n} for n in range(20)])))
    docs = cdf.read_jsonl(str(write_rows(tmp_path / "a", [{"id": f"D{n}", "text": "x"} for n in range(20)])))
    docs = docs.assign(id=docs["id"].str.lower()).pipe(cdf.keep_where, "id != 'd7'")
    other = other.pipe(cdf.keep_where, "score > 4").rename(columns={"id": "doc"})
    joined = docs.pipe(cdf.join, other, on={"id": "doc"}, how="inner").pipe(cdf.keep_where, "score % 2 == 1")
    receipt = cdf.write_parquet(joined, str(tmp_path / "out"))
    assert cdf.read_parquet(str(tmp_path / "out")).compute()["score"].tolist() == [5, 9, 11, 13, 15, 17, 19]
    assert [(step.name, step.dropped) for step in receipt.steps if step.name == "join"] == [("join", {"no_match": 5})]


def test_a_look_runs_the_pass_over_the_other_table(cluster, tmp_path):
    other = cdf.read_jsonl(str(write_rows(tmp_path / "b", [{"id": "a", "score": 1}, {"id": "b", "score": 2}])))
    docs = cdf.read_jsonl(str(write_rows(tmp_path / "a", [{"id": "b", "text": "x"}, {"id": "c", "text": "y"}])))
    joined = cdf.join(docs, other, on="id")
    assert joined.head()["score"].tolist() == [2, pd.NA]
    assert cdf.join(docs, other, on="id", how="anti").compute()["id"].tolist() == ["c"]
    assert "other table for join" in str(cdf.explain(joined))


def test_any_dask_table_is_computed_into_working_files(cluster, tmp_path):
    docs = cdf.read_jsonl(str(write_rows(tmp_path / "a", [{"id": "b", "text": "x"}, {"id": "c", "text": "y"}])))
    other = dd.from_pandas(SCORES, npartitions=2)
    cdf.write_parquet(cdf.join(docs, other, on="id", columns=["score"]), str(tmp_path / "out"))
    assert cdf.read_parquet(str(tmp_path / "out")).compute()["score"].tolist() == [2, pd.NA]


def test_other_tables_that_cannot_be_joined_are_refused(cluster, tmp_path):
    docs = cdf.read_jsonl(str(write_rows(tmp_path / "a", [{"id": "b", "text": "x"}])))
    with pytest.raises(
        errors.ExpressionError, match=r"deferred operation drop_exact_duplicates.*checkpoint\(other, path\)"
    ):
        cdf.join(docs, cdf.drop_exact_duplicates(docs), on="id")
    with pytest.raises(errors.ParameterError, match=r"the other table is a list\. Pass a table .* for a list of IDs"):
        cdf.join(docs, ["b"], on="id")
    with pytest.raises(errors.ExpressionError, match=r"split_documents makes from one row"):
        cdf.join(cdf.split_documents(docs), docs, on="id", columns=[], how="left")
    kept = cdf.join(cdf.split_documents(docs), pd.DataFrame({"id": ["b"]}), on="id", how="semi")
    assert len(kept.compute()) == 1


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_long_texts_are_planned_by_the_first_rows(cluster, tmp_path, suffix):
    rows = pd.DataFrame({"id": [f"{number}" for number in range(4_000)], "title": "x" * 5_000})
    if suffix == "jsonl":
        rows.to_json(tmp_path / "b.jsonl", orient="records", lines=True)
        other = cdf.read_jsonl(str(tmp_path / "b.jsonl"))
    else:
        rows.to_parquet(tmp_path / "b.parquet")
        other = cdf.read_parquet(str(tmp_path / "b.parquet"))
    docs = cdf.read_jsonl(str(write_rows(tmp_path / "a", [{"id": "7"}, {"id": "none"}])))
    for name, one in (("title", other), ("heading", other.rename(columns={"title": "heading"}))):
        joined = cdf.join(docs, one, on="id")
        assert [len(text) for text in joined.compute()[name].dropna()] == [5_000]
        (kernel,) = [node.operand("func") for node in joined.expr.walk() if "func" in node._parameters][:1]
        assert 40_000_000 < kernel.price.held_bytes < 90_000_000


def test_what_does_not_fit_is_refused_with_its_bytes(cluster, tmp_path, monkeypatch):
    rows = [{"id": f"{n}", "t": "x" * (10 if n < 8_000 else 100_000)} for n in range(8_400)]
    other = cdf.read_jsonl(str(write_rows(tmp_path / "b", rows, files=1)))
    docs = cdf.read_jsonl(str(write_rows(tmp_path / "a", [{"id": "b", "text": "x"}])))
    monkeypatch.setattr(row_estimate, "harmonic_mean", fmean)  # the few long rows hide most rows from the plan
    said = r"the other table takes 89 MB in each worker, but only \d+ MB were planned.*shuffle the other table first"
    with pytest.raises(errors.BudgetError, match=said):
        cdf.write_parquet(cdf.join(docs, other, on="id"), str(tmp_path / "out"))
    monkeypatch.setattr(stages, "HELD_MARGIN", 50_000)
    with pytest.raises(errors.BudgetError, match=r"after \d+\.\d+ GB for steps"):
        cdf.write_parquet(cdf.join(docs, other, on="id"), str(tmp_path / "out2"))


def test_a_frame_too_large_to_send_is_refused(monkeypatch):
    monkeypatch.setattr(lookups, "MOST_FRAME_BYTES", 50)
    refused(errors.ParameterError, r"DataFrame of \d+ B.*to_parquet\(path\)")


def test_workers_release_the_other_table_when_the_run_ends(cluster, tmp_path):
    from curator_df.memory import process_cache

    other = cdf.read_jsonl(str(write_rows(tmp_path / "b", [{"id": "b", "score": 2}])))
    docs = cdf.read_jsonl(str(write_rows(tmp_path / "a", [{"id": "b", "text": "x"}])))
    for number, one in enumerate((other, SCORES)):
        cdf.write_parquet(cdf.join(docs, one, on="id"), str(tmp_path / f"out{number}"))
        assert process_cache._held == {}


def test_a_resume_with_another_frame_or_setting_says_what_changed(cluster, tmp_path):
    docs = cdf.read_jsonl(str(write_rows(tmp_path / "a", [{"id": "b", "text": "x"}])))

    def write(other=SCORES, **arguments):
        cdf.write_parquet(cdf.join(docs, other, on="id", **arguments), str(tmp_path / "out"), on_existing="resume")

    write()
    write(SCORES.copy())
    with pytest.raises(errors.ResumeError, match="how changed from 'left' to 'inner'"):
        write(how="inner")
    with pytest.raises(errors.ResumeError, match=r"other changed \(a HeldFrame\)"):
        write(SCORES.assign(score=5))


def test_an_other_table_that_does_not_fit_is_refused_before_it_is_written_to_working_files(cluster, monkeypatch):
    docs = table()
    monkeypatch.setattr(Spool, "_written", lambda *_: pytest.fail("written"))
    other = dd.from_pandas(SCORES.assign(other=1.5), npartitions=2)
    with pytest.raises(errors.SchemaError, match="the key 'other' of the other table holds float64, but keys must be"):
        cdf.join(docs, other, on={"id": "other"})
    with pytest.raises(errors.ColumnError, match="the other table"):
        cdf.join(docs, other, on={"id": "missing"})
    with pytest.raises(
        errors.ExpressionError, match="the other table has the deferred operation drop_exact_duplicates"
    ):
        cdf.join(docs, other.pipe(cdf.drop_exact_duplicates, subset="score"), on="id")
