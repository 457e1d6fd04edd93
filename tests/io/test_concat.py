# SPDX-License-Identifier: Apache-2.0
"""`concat`: the rows of several tables one after another, with the rules and steps of each, in one run."""

import json

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import curator_df as cdf
from curator_df import errors
from curator_df.core.planning import lowering
from curator_df.core.planning.lowering import lower
from curator_df.core.ranges.source import OFFSET_BITS
from curator_df.io.output.spool import Spool
from tests.core.runner.fake_client import inline_cluster
from tests.examples import examples


@pytest.fixture(scope="module")
def cluster():
    with inline_cluster(memory="1.5GB", cpus=2) as running:
        yield running


def jsonl(folder, rows, files=1, **arguments):
    folder.mkdir(parents=True)
    for part in range(files):
        mine = rows[part * len(rows) // files : (part + 1) * len(rows) // files]
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in mine))
    return cdf.read_jsonl(folder, **arguments)


def numbered(first, stop):
    return [{"id": number, "text": f"text {number}"} for number in range(first, stop)]


def written(table, folder, **arguments):
    receipt = cdf.write_parquet(table, folder, **arguments)
    return cdf.read_parquet(folder).compute().reset_index(drop=True), receipt


def test_rows_of_several_formats_follow_one_another(cluster, tmp_path):
    first = jsonl(tmp_path / "a", numbered(0, 20), files=3)
    (tmp_path / "b.csv").write_text("text,id\n" + "".join(f"text {n},{n}\n" for n in range(20, 30)))
    pd.DataFrame(numbered(30, 40)).to_parquet(tmp_path / "c.parquet")
    both = cdf.concat([first, cdf.read_csv(tmp_path / "b.csv"), cdf.read_parquet(tmp_path / "c.parquet")])
    found, receipt = written(both, tmp_path / "out")
    pd.testing.assert_frame_equal(found, both.compute().reset_index(drop=True))
    assert found["id"].tolist() == list(range(40))
    assert found["text"].tolist() == [f"text {number}" for number in range(40)]
    assert (str(found["id"].dtype), receipt.rows_read, receipt.rows_written) == ("Int64", 40, 40)
    files = both.compute().index.to_numpy() >> OFFSET_BITS
    assert files.tolist() == [*[0] * 6, *[1] * 7, *[2] * 7, *[3] * 10, *[4] * 10]


def test_tables_that_are_alike_are_one_read_without_steps(tmp_path):
    tables = [jsonl(tmp_path / name, numbered(0, 3)) for name in "ab"]
    both = cdf.concat(tables)
    assert lower(both).steps == ()
    assert list(lower(both[["id"]]).source.meta.columns) == ["id"]
    assert both[["id"]].compute()["id"].tolist() == [0, 1, 2, 0, 1, 2]


def test_each_table_has_its_own_steps(cluster, tmp_path):
    first = jsonl(tmp_path / "a", numbered(0, 20), files=2).pipe(cdf.keep_where, "id % 2 == 0", reason="odd")
    second = jsonl(tmp_path / "b", [{"n": n, "body": f"a\n\nb {n}"} for n in range(20, 30)])
    second = second.rename(columns={"n": "id", "body": "text"})
    second = second[second["id"] > 22].pipe(cdf.split_documents).drop(columns="segment_id")
    second = second.map_partitions(lambda block: block.assign(text=block["text"].str.upper()), meta=second._meta)
    both = cdf.concat([first, second]).pipe(cdf.keep_where, "id != 4", reason="four")
    found, receipt = written(both, tmp_path / "out", rejects=tmp_path / "rejects")
    expected = [(n, f"text {n}") for n in range(0, 20, 2) if n != 4]
    expected += [row for n in range(23, 30) for row in ((n, "A"), (n, f"B {n}"))]
    assert list(zip(found["id"], found["text"], strict=True)) == expected
    pd.testing.assert_frame_equal(both.compute().reset_index(drop=True), found)
    dropped = {reason: count for step in receipt.steps for reason, count in step.dropped.items()}
    assert dropped == {"odd": 10, "four": 1, "filter": 3} or sum(dropped.values()) == 14
    rejects = pd.read_parquet(tmp_path / "rejects")
    assert len(rejects) == 14
    assert rejects["reject_file"].str.contains("/a/").sum() == 11
    assert "split_documents" in str(cdf.explain(both))


def test_columns_of_any_table_are_null_in_the_others(cluster, tmp_path):
    first = jsonl(tmp_path / "a", [{"id": 1, "text": "x"}])
    second = jsonl(tmp_path / "b", [{"id": 2, "score": 7, "tags": ["t"]}])
    both = cdf.concat([first, second], how="union")
    assert list(both.columns) == ["id", "text", "score", "tags"]
    found, _ = written(both, tmp_path / "out")
    assert found["score"].tolist() == [pd.NA, 7]
    assert str(found["score"].dtype) == "Int64"
    assert found["text"].tolist() == ["x", pd.NA]
    assert found["tags"].isna().tolist() == [True, False]
    assert both.dtypes.astype(str).tolist() == both.compute().dtypes.astype(str).tolist()


def test_each_table_keeps_its_rules_for_bad_rows(cluster, tmp_path):
    lines = '{"id": 1, "text": "x"}\nnot a row\n'
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.jsonl").write_text(lines)
    lenient = cdf.read_jsonl(tmp_path / "a", on_bad_rows="quarantine")
    strict = cdf.read_jsonl(tmp_path / "b", dtype={"id": "int64", "text": "string"})
    good = jsonl(tmp_path / "c", numbered(5, 6))
    found, receipt = written(cdf.concat([good, lenient]), tmp_path / "out")
    assert (found["id"].tolist(), receipt.rows_quarantined) == ([5, 1], 1)
    (quarantined,) = (tmp_path / "out/_quarantine").glob("*.jsonl")
    row = json.loads(quarantined.read_text())
    assert (row["file"].endswith("/a/0.jsonl"), row["offset"]) == (True, 23)
    with pytest.raises(errors.BadRowError, match=r"/b/0.jsonl', line 2 \(byte 23\)"):
        cdf.write_parquet(cdf.concat([lenient, strict]), tmp_path / "out2")


def test_later_steps_and_drops_see_all_rows(cluster, tmp_path):
    tables = [jsonl(tmp_path / name, numbered(first, first + 10)) for name, first in (("a", 0), ("b", 5))]
    unique = cdf.drop_exact_duplicates(cdf.concat([tables[0], tables[1].pipe(cdf.keep_where, "id > 0")]))
    found, _ = written(unique, tmp_path / "out")
    assert found["id"].tolist() == list(range(15))
    numbered_rows, _ = written(cdf.add_ids(cdf.concat(tables), into="n", dense=True), tmp_path / "ids")
    assert numbered_rows["n"].tolist() == list(range(20))
    groups = cdf.find_exact_duplicates(cdf.concat(tables), workdir=tmp_path / "groups")
    assert len(groups.compute()) == 10
    joined = cdf.concat(tables).pipe(cdf.join, tables[1][["id"]], on="id", how="semi", duplicates="first")
    assert written(joined, tmp_path / "joined")[0]["id"].tolist() == [*range(5, 10), *range(5, 15)]


def test_a_resume_names_what_changed(cluster, tmp_path):
    tables = [jsonl(tmp_path / name, numbered(0, 5)) for name in "ab"]
    cdf.write_parquet(cdf.concat(tables), tmp_path / "out")
    cdf.write_parquet(cdf.concat(tables), tmp_path / "out", on_existing="resume")
    with pytest.raises(errors.ResumeError, match=r"the steps? "):
        cdf.write_parquet(
            cdf.concat([tables[0], tables[1].pipe(cdf.keep_where, "id > 1")]), tmp_path / "out", on_existing="resume"
        )
    (tmp_path / "b/0.jsonl").write_text('{"id": 1, "text": "x"}\n')
    with pytest.raises(errors.ResumeError, match=r"of table 2.*changed"):
        cdf.write_parquet(
            cdf.concat([tables[0], cdf.read_jsonl(tmp_path / "b")]), tmp_path / "out", on_existing="resume"
        )


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    blocksize=st.integers(20, 200),
    keep=st.integers(0, 12),
)
def test_rows_do_not_depend_on_blocks(sizes, blocksize, keep, tmp_path_factory):
    folder = tmp_path_factory.mktemp("concat")
    dtype = {"id": "int64", "text": "string"}
    tables = [
        jsonl(folder / str(place), numbered(0, size), dtype=dtype, blocksize=blocksize)
        for place, size in enumerate(sizes)
    ]
    tables[-1] = tables[-1].pipe(cdf.keep_where, f"id < {keep}")
    found = cdf.concat(tables).compute()
    expected = [row["id"] for size in sizes[:-1] for row in numbered(0, size)]
    expected += [row["id"] for row in numbered(0, sizes[-1]) if row["id"] < keep]
    assert found["id"].tolist() == expected
    assert found.index.is_monotonic_increasing
    assert found.index.is_unique


def test_what_cannot_follow_is_refused(tmp_path):
    first = jsonl(tmp_path / "a", numbered(0, 3))
    other = jsonl(tmp_path / "b", [{"id": "x", "text": "y"}])
    more = jsonl(tmp_path / "c", [{"id": 1, "body": "y"}])
    for tables, error, match in (
        (
            [first, other],
            errors.SchemaError,
            r"the column 'id' is large_string in table 2, but int64 in an earlier table.*astype",
        ),
        ([first, more], errors.ColumnError, "table 2 lacks 'text' and also has 'body'.*how='union'"),
        (
            [first, cdf.drop_exact_duplicates(first)],
            errors.ExpressionError,
            r"deferred operation drop_exact.*checkpoint",
        ),
        ([], errors.ParameterError, "a list of at least one table"),
        (first, errors.ParameterError, "a list of at least one table"),
    ):
        with pytest.raises(error, match=match):
            cdf.concat(tables)
    with pytest.raises(errors.ParameterError, match="how='all' is not one of"):
        cdf.concat([first], how="all")


def test_categories_become_their_values(cluster, tmp_path):
    large = 2**60 + 1
    rows = [{"n": large, "kind": "a"}, {"n": None, "kind": None}, {"n": 5, "kind": "b"}]
    docs = jsonl(tmp_path / "a", rows, dtype={"n": "Int64"})
    known = docs.astype({"n": pd.CategoricalDtype([large, 5]), "kind": "category"})
    joined = cdf.concat([docs, known]).compute()
    assert joined["n"].tolist() == [large, pd.NA, 5] * 2
    assert joined["kind"].tolist() == ["a", pd.NA, "b"] * 2
    unknown = docs.astype({"n": "category"})
    with pytest.raises(errors.SchemaError, match="categories of 'n' were not known before the run"):
        cdf.concat([unknown, unknown]).compute()


def test_a_column_of_only_nulls_takes_the_type_of_the_others(tmp_path):
    values = {"n": [1, 2], "flag": [True, None], "kind": ["a", "b"], "list": [[1], None], "none": pa.nulls(2)}
    pq.write_table(pa.table(values), tmp_path / "typed.parquet")
    pq.write_table(pa.table(dict.fromkeys(values, pa.nulls(1))), tmp_path / "nulls.parquet")
    typed, nulls = (cdf.read_parquet(tmp_path / f"{name}.parquet") for name in ("typed", "nulls"))
    no_categories = nulls.assign(n=nulls["n"].astype(pd.CategoricalDtype([])))
    types = {"n": "Int64", "flag": "boolean", "kind": "string", "list": typed.dtypes["list"], "none": "string"}
    for tables in ([typed, nulls], [nulls, typed], [no_categories, typed], [nulls, typed, nulls]):
        joined = cdf.concat(tables)
        assert joined.dtypes.to_dict() == joined.compute().dtypes.to_dict() == types
        assert sorted(joined["n"].compute().dropna()) == [1, 2]
    only_here = cdf.concat([typed[["n"]], nulls, typed], how="union")
    assert only_here.dtypes.to_dict() == types
    assert only_here["kind"].compute().isna().tolist() == [True] * 3 + [False] * 2


def test_a_step_of_one_table_must_keep_the_index(cluster, tmp_path):
    first = jsonl(tmp_path / "a", numbered(0, 3))
    second = jsonl(tmp_path / "b", numbered(0, 3))
    moved = second.map_partitions(lambda block: block.set_axis(range(len(block))), meta=second._meta)
    with pytest.raises(errors.CuratorError, match=r"changed the index|index value"):
        cdf.write_parquet(cdf.concat([first, moved]), tmp_path / "out")


def test_all_tables_are_checked_before_the_first_is_written_to_working_files(cluster, monkeypatch, tmp_path):
    rows = pd.DataFrame({"id": ["a"], "text": ["b"]})
    first = dd.from_pandas(rows.set_index("id"), npartitions=1)
    monkeypatch.setattr(Spool, "_written", lambda *_: pytest.fail("written"))
    with pytest.raises(errors.ColumnError, match=r"^concat: table 2 lacks 'text', compared with the first table"):
        cdf.concat([first, dd.from_pandas(rows[["id"]], npartitions=1)])
    numbers = dd.from_pandas(rows.assign(id=1), npartitions=1)
    strings = dd.from_pandas(rows.astype("string"), npartitions=1)
    with pytest.raises(
        errors.SchemaError, match=r"^concat: the column 'id' is int64 in table 2, but large_string in an earlier table"
    ):
        cdf.concat([strings, numbers])
    with pytest.raises(
        errors.ExpressionError, match=r"^concat: table 1 has the deferred operation drop_exact_duplicates"
    ):
        cdf.concat([strings.pipe(cdf.drop_exact_duplicates), strings])
    (tmp_path / "a.jsonl").write_text('{"id": "a", "text": "b"}\n')
    pending = cdf.read_jsonl(tmp_path / "a.jsonl").pipe(cdf.drop_exact_duplicates)
    with pytest.raises(
        errors.ExpressionError, match=r"^concat: table 2 has the deferred operation drop_exact_duplicates"
    ):
        cdf.concat([first, pending])


def test_whole_numbers_that_a_merge_turns_into_fractions_go_with_fractions(cluster, tmp_path):
    """Dask announces int64 for a column that has nulls where a row has no match."""
    pd.DataFrame({"n": [0.5, 1.5]}).to_parquet(tmp_path / "n.parquet")
    left, right = (dd.from_pandas(pd.DataFrame(one), npartitions=1) for one in ({"id": [1, 2]}, {"id": [1], "n": [7]}))
    merged = left.merge(right, on="id", how="left")[["n"]]
    assert merged.dtypes["n"].kind == "i"
    found, _ = written(cdf.concat([cdf.read_parquet(tmp_path / "n.parquet"), merged]), tmp_path / "out")
    assert found["n"].tolist()[:3] == [0.5, 1.5, 7.0]
    assert found["n"].isna().tolist() == [False, False, False, True]


def test_columns_of_objects_have_the_type_of_their_rows(cluster):
    rows = pd.DataFrame({"id": [1, 2]})
    objects = dd.from_pandas(rows.astype(object), npartitions=1)
    assert cdf.concat([dd.from_pandas(rows, npartitions=1), objects])["id"].compute().tolist() == [1, 2, 1, 2]


def test_a_table_of_pandas_without_a_cluster_is_named_and_a_cluster_is_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setattr(lowering, "_spoolers", [])
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    rows = dd.from_pandas(pd.DataFrame({"text": ["b"]}), npartitions=1)
    said = r"^concat: table 2: this table does not begin with .*no cluster is running that has a folder for them\. Start one with"
    with pytest.raises(errors.ExpressionError, match=said):
        cdf.concat([cdf.read_jsonl(tmp_path / "a.jsonl"), rows])
