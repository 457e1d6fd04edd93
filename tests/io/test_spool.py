# SPDX-License-Identifier: Apache-2.0
"""Tables that a run cannot stream go through working files: rows in memory, Dask's readers, sorts, merges."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.cluster.spill_folder import WorkingFolder
from curator_df.core.columns import has_no_type
from curator_df.core.planning.lowering import current_spooler, foreign_part
from curator_df.core.runner.session import current_session
from curator_df.files.storage import Folder
from curator_df.io.output import spool

ROWS = pd.DataFrame({"n": range(60), "text": [f"text {number // 2}" for number in range(60)]})


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with cdf.start_cluster(memory="2GB", cpus=2) as running:
        yield running


@pytest.fixture
def docs(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for start in (0, 20, 40):
        rows = ROWS.iloc[start : start + 20].to_dict("records")
        (folder / f"{start}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return cdf.read_jsonl(str(folder))


def written(table, folder: Path) -> list[int]:
    cdf.write_parquet(table, folder)
    return [int(number) for number in dd.read_parquet(folder)["n"].compute()]


def spooled() -> set[Path]:
    return set(Path(str(current_session().workdir)).glob("spool/*"))


def test_rows_of_pandas_are_written(tmp_path):
    assert written(dd.from_pandas(ROWS, npartitions=4), tmp_path / "out") == list(range(60))


def test_rows_of_pandas_go_through_operators_and_full_passes(tmp_path):
    table = dd.from_pandas(ROWS, npartitions=4).pipe(cdf.normalize_whitespace).pipe(cdf.drop_exact_duplicates)
    assert written(table, tmp_path / "out") == list(range(0, 60, 2))


def test_the_disk_for_a_table_that_dask_computes_first_is_counted(docs, monkeypatch):
    alone, ordered = (
        cdf.explain(docs.pipe(cdf.drop_near_duplicates)),
        docs.sort_values("n").pipe(cdf.drop_near_duplicates),
    )
    spooled, near = cdf.explain(ordered).working_files.needs
    assert (spooled.name, spooled.needed_bytes) == ("sort_values", spooled.kept_bytes)
    (of_alone,) = alone.working_files.needs
    assert 0.5 * of_alone.needed_bytes < near.needed_bytes < 2 * of_alone.needed_bytes
    monkeypatch.setattr(Folder, "free_bytes", lambda self: 10)
    with pytest.raises(errors.DiskFullError, match="Nothing was started") as refused:
        cdf.explain(ordered)
    with pytest.raises(errors.DiskFullError) as started:
        cdf.shuffle_rows(docs.sort_values("n"), "out")
    assert str(refused.value) == str(started.value)


def test_rows_that_dask_computes_first_are_planned_with_their_width(tmp_path):
    rows = pd.DataFrame({"text": ["a text of some words " * 300] * 50, "n": range(50)})
    rows.to_parquet(tmp_path / "a.parquet")
    read, made = cdf.read_parquet(tmp_path / "a.parquet"), dd.from_pandas(rows, npartitions=2)
    for run, step in ((None, cdf.drop_near_duplicates), (cdf.shuffle_rows, cdf.normalize_whitespace)):
        (*_, of_read), (*_, of_made) = (cdf.explain(step(table), run).working_files.needs for table in (read, made))
        assert 0.5 * of_read.needed_bytes < of_made.needed_bytes < 2 * of_read.needed_bytes
    assert str(cdf.explain(made)).count("deleted at the end; rows that Dask computes when the cluster closes") == 1


def test_a_plan_makes_no_folder_below_that_of_the_user(docs, tmp_path, monkeypatch):
    monkeypatch.setattr(current_session(), "working_folder", WorkingFolder(str(tmp_path / "work")).path)
    monkeypatch.delitem(vars(current_spooler()), "folder", raising=False)
    cdf.explain({"a": docs, "b": docs}, cdf.blend, epochs={"a": 1, "b": 2})
    said = dict(cdf.explain(docs.sort_values("n")).remarks)["working files"]
    assert f"writes its rows to {tmp_path}/work/spool: about " in said
    assert not (tmp_path / "work").exists()


def test_a_plan_for_another_cluster_knows_nothing_of_the_disk_of_this_one(docs, monkeypatch):
    monkeypatch.setattr(Folder, "free_bytes", lambda self: 10)
    assert cdf.explain(docs.sort_values("n"), memory="20GB").stages
    assert cdf.explain(docs, cdf.find_near_duplicates, memory="20GB").stages


def test_the_budget_of_a_plan_is_that_of_the_cluster_unless_it_is_named(docs):
    allowed_bytes = current_session().layout.allowed_bytes
    for options in ({}, {"processes": False}, {"cpus": 1}):
        assert cdf.explain(docs, **options).layout.allowed_bytes == allowed_bytes
    assert cdf.explain(docs, memory="1GB", processes=False).layout.allowed_bytes == 1_000_000_000


def test_rows_that_are_merged_are_not_counted_twice():
    one, other = (dd.from_pandas(ROWS[:count], npartitions=1) for count in (60, 40))
    assert spool.about_rows(one.merge(other, on="n").expr) == 60
    assert spool.about_rows(dd.concat([one, other]).expr) == 100


def test_nested_values_and_nulls_are_kept(tmp_path):
    rows = pd.DataFrame({"n": [1, 2, 3], "tags": [["a"], None, ["b", "c"]], "f": [0.5, None, 1.5]})
    cdf.write_parquet(dd.from_pandas(rows, npartitions=2), tmp_path / "out")
    found = pd.read_parquet(tmp_path / "out")
    assert found["tags"].dropna().map(list).to_dict() == {0: ["a"], 2: ["b", "c"]}
    assert found["f"].isna().tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (lambda d: d[d["n"] < 9].persist(), list(range(9))),
        (lambda d: d.sort_values("n", ascending=False), list(range(59, -1, -1))),
        (lambda d: dd.concat([d, d]), [*range(60), *range(60)]),
        (lambda d: d.repartition(npartitions=2), list(range(60))),
        (lambda d: d.set_index("n").reset_index(), list(range(60))),
    ],
    ids=["persist", "sort", "concat", "repartition", "set_index"],
)
def test_what_dask_computes_is_streamed_from_its_files(docs, operation, expected, tmp_path):
    assert written(operation(docs).pipe(cdf.normalize_whitespace), tmp_path / "out") == expected


def test_an_index_that_was_set_becomes_a_column(docs, tmp_path):
    assert sorted(written(docs.set_index("n"), tmp_path / "out")) == list(range(60))


def test_a_merge_keeps_its_rows(docs, tmp_path):
    labels = dd.from_pandas(pd.DataFrame({"n": [3, 5], "label": ["a", "b"]}).astype({"n": "Int64"}), npartitions=1)
    cdf.write_parquet(docs.merge(labels, on="n").pipe(cdf.drop_exact_duplicates), tmp_path / "out")
    found = pd.read_parquet(tmp_path / "out").sort_values("n")
    assert found[["n", "label"]].to_numpy().tolist() == [[3, "a"], [5, "b"]]


def test_a_table_of_a_reader_of_dask_is_streamed(tmp_path):
    ROWS.to_parquet(tmp_path / "in.parquet")
    assert written(dd.read_parquet(tmp_path / "in.parquet"), tmp_path / "out") == list(range(60))


def test_steps_after_a_sort_are_streamed_and_the_sort_runs_once(docs, tmp_path):
    before = spooled()
    ordered = docs.sort_values("n", ascending=False)
    assert written(ordered.pipe(cdf.keep_where, "n < 3"), tmp_path / "a") == [2, 1, 0]
    assert written(ordered.pipe(cdf.keep_where, "n < 2"), tmp_path / "b") == [1, 0]
    assert len(spooled() - before) == 1


def test_a_receipt_names_what_dask_computed_before_it_began_to_count(docs, tmp_path):
    unique = docs.drop_duplicates(subset="text").sort_values("n").pipe(cdf.keep_where, "n < 3")
    receipt = cdf.write_parquet(unique, tmp_path / "a")
    said = "Dask computed drop_duplicates, sort_values; rows that it removed or added then are not counted here"
    assert receipt.settings["before"] == said and said in " ".join(str(receipt).split())
    assert "before" not in cdf.write_parquet(docs, tmp_path / "b").settings


def test_a_receipt_names_what_removed_rows_in_each_table_that_dask_computed(docs, tmp_path):
    ordered = docs.pipe(cdf.drop_exact_duplicates).pipe(cdf.keep_where, "n > 1").sort_values("n")
    above = docs[docs["n"] > docs["n"].mean()]
    for number, (table, said) in enumerate(
        [
            (ordered, "drop_exact_duplicates, keep_where, sort_values"),
            (above, "filter"),
            (cdf.concat([docs.sort_values("n"), docs.drop_duplicates(subset="text")]), "sort_values, drop_duplicates"),
        ]
    ):
        before = cdf.write_parquet(table, tmp_path / f"out-{number}").settings["before"]
        assert before == f"Dask computed {said}; rows that it removed or added then are not counted here"


def test_a_drop_before_a_sort_is_resolved(docs, tmp_path):
    table = docs.pipe(cdf.drop_exact_duplicates).sort_values("n", ascending=False).pipe(cdf.keep_where, "n < 6")
    assert written(table, tmp_path / "out") == [4, 2, 0]


def test_a_table_of_ours_is_not_spooled(docs, tmp_path):
    before = spooled()
    assert written(docs[docs["n"] > 57].assign(m=1), tmp_path / "out") == [58, 59]
    assert spooled() == before
    assert foreign_part(docs[docs["n"] > 57].expr) is None


@pytest.mark.parametrize(
    ("operation", "instead"),
    [
        (lambda d: d.sample(frac=0.5), "sample_rows"),
        (lambda d: d.random_split([0.5, 0.5])[1], "split_rows"),
        (lambda d: d.partitions[:1], "sample_rows"),
    ],
    ids=["sample", "random_split", "partitions"],
)
def test_what_depends_on_the_block_size_is_refused(docs, operation, instead, tmp_path):
    with pytest.raises(errors.ExpressionError, match=instead):
        cdf.write_parquet(operation(docs), tmp_path / "out")
    with pytest.raises(errors.ExpressionError, match=instead):
        cdf.write_parquet(operation(docs).sort_values("n"), tmp_path / "out")


def test_columns_that_are_not_named_by_text_are_refused(tmp_path):
    with pytest.raises(errors.SchemaError, match="Rename them first"):
        cdf.write_parquet(dd.from_pandas(pd.DataFrame({0: [1]}), npartitions=1), tmp_path / "out")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            functools.reduce(lambda inner, _: [inner], range(60), 1),
            "'a' is nested 121 levels deep, but Parquet can have 99",
        ),
        ({}, "'a' has the type struct<>, but an object without fields has no place in Parquet"),
    ],
    ids=["deep", "no fields"],
)
def test_types_that_parquet_does_not_have_are_refused(tmp_path, value, said):
    table = dd.from_pandas(pd.DataFrame({"a": [value], "id": [1]}), npartitions=1)
    with pytest.raises(
        errors.SchemaError, match=rf"a table that Dask computed: the column {said}.*leave the column out"
    ):
        cdf.write_parquet(table, tmp_path / "out")


def test_groups_are_found_in_rows_of_pandas(tmp_path):
    assert len(cdf.find_exact_duplicates(dd.from_pandas(ROWS, npartitions=2), workdir=tmp_path)) == 60


def test_groups_shuffles_and_concatenations_of_rows_of_pandas(tmp_path):
    table = dd.from_pandas(
        ROWS.assign(text=ROWS["text"] + " of some length that shingles can be made of"), npartitions=2
    )
    groups = cdf.find_exact_duplicates(table, workdir=tmp_path / "groups")
    kept = table.pipe(cdf.drop_exact_duplicates, groups=groups)
    assert written(kept, tmp_path / "kept") == list(range(0, 60, 2))
    parts = cdf.split_rows(table, {"a": 0.5, "b": 0.5}, groups=groups)
    sides = [set(part["text"].compute()) for part in parts.values()]
    assert not sides[0] & sides[1]
    assert sum(map(len, sides)) == 30
    assert cdf.audit_duplicates(groups, table).precision()["precision"].tolist() == [1.0]
    assert cdf.describe_exact_duplicates(groups, docs=table).rows == 60
    against = table.pipe(cdf.add_minhash)
    assert len(table.pipe(cdf.add_minhash).pipe(cdf.drop_near_duplicates, signatures="minhash", against=against)) == 0
    assert sorted(cdf.shuffle_rows(table, tmp_path / "shuffled")["n"].compute()) == list(range(60))
    both = cdf.concat([cdf.checkpoint(table, tmp_path / "first"), table])
    assert both["n"].compute().tolist() == [*range(60), *range(60)]


def odd_index(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.set_axis(pd.Index([f"r{number:02d}" for number in range(len(rows))], name=None))


@pytest.mark.parametrize(
    "made",
    [
        lambda rows: rows,
        odd_index,
        lambda rows: odd_index(rows).rename_axis("key"),
        lambda rows: rows.set_index("n", drop=False),
    ],
    ids=["range", "text", "named", "column"],
)
def test_a_look_at_rows_of_pandas_is_what_pandas_makes(made):
    rows = made(ROWS.assign(f=[None, *range(59)], day=pd.Timestamp("2026-01-01")))
    rows.index.name = "index" if rows.index.name == "n" else rows.index.name
    kept = dd.from_pandas(rows, npartitions=4).pipe(cdf.drop_exact_duplicates)
    expected = rows.drop_duplicates(subset=["text"])
    pd.testing.assert_frame_equal(kept.compute().astype({"text": object}), expected.astype({"text": object}))
    assert len(kept) == 30
    assert kept.head(2)["n"].tolist() == [0, 2]
    assert kept.partitions[2].compute()["n"].tolist() == [n for n in range(30, 45) if n % 2 == 0]
    assert int(kept.groupby("text")["n"].count().compute().max()) == 1


@pytest.mark.parametrize(
    "operation",
    [lambda d: d.sort_values("n", ascending=False), lambda d: dd.concat([d, d]), lambda d: d[d["n"] > 50].persist()],
    ids=["sort", "concat", "persist"],
)
def test_a_look_after_a_step_of_dask(docs, operation):
    table = operation(docs)
    expected = table.compute().drop_duplicates(subset=["text"])
    kept = table.pipe(cdf.drop_exact_duplicates)
    pd.testing.assert_frame_equal(kept.compute(), expected)
    assert kept.head(1, npartitions=-1)["n"].tolist() == expected["n"].tolist()[:1]


def test_a_partition_without_rows_stays_one():
    rows = dd.from_pandas(ROWS, npartitions=3)
    table = rows[(rows["n"] < 10) | (rows["n"] >= 50)].pipe(cdf.drop_exact_duplicates)
    assert [len(part) for part in table.partitions] == [5, 0, 5]


def test_a_writer_reads_what_a_look_has_computed(docs, tmp_path):
    before = spooled()
    kept = dd.from_pandas(ROWS.assign(n=ROWS["n"] + 1), npartitions=3).pipe(cdf.drop_exact_duplicates)
    assert len(kept) == 30
    assert written(kept, tmp_path / "out") == list(range(1, 61, 2))
    assert len(spooled() - before) == 1


def test_a_run_on_a_table_of_pandas_says_that_its_working_files_are_gone(tmp_path):
    table = dd.from_pandas(pd.DataFrame({"text": ["a", "b"]}), npartitions=1)
    cdf.write_parquet(table, tmp_path / "out")
    current_spooler().forget(table.expr)  # as the end of its cluster does
    said = r"the list of working files with the input changed \(1 file, [\d,]+ bytes\)\. .+ in the same cluster\. Write them"
    with pytest.raises(errors.ResumeError, match=said):
        cdf.write_parquet(table, tmp_path / "out", on_existing="resume")


def test_too_small_a_disk_is_refused_before_anything_is_written(docs, tmp_path, monkeypatch):
    before = spooled()
    monkeypatch.setattr(Folder, "free_bytes", lambda self: 100)
    with pytest.raises(
        errors.DiskFullError, match=r"temporary files of about .*, but only 100 .* are free in .*spool"
    ) as failed:
        cdf.write_parquet(docs.sort_values("n", ascending=False), tmp_path / "out")
    assert "Nothing was started" in str(failed.value)
    assert spooled() == before


def test_a_disk_that_fills_is_named_and_nothing_stays(docs, tmp_path, monkeypatch):
    before = spooled()

    def no_room(block, number, folder):
        if number == 2:
            with spool._spool_errors(folder):
                raise OSError(28, "No space left on device")
        return write(block, number, folder)

    write = spool._write_part
    no_room.__name__ = "_write_part"
    monkeypatch.setattr(spool, "_write_part", no_room)
    with pytest.raises(errors.DiskFullError, match=r"No space is left in .*spool.*have been deleted"):
        cdf.write_parquet(docs.sort_values("n", ascending=False).repartition(npartitions=4), tmp_path / "out")
    assert spooled() == before


def test_an_error_of_cleaning_up_does_not_hide_that_of_the_table(tmp_path, monkeypatch):
    def refuse(self, name):
        raise PermissionError("not allowed to delete")

    monkeypatch.setattr(Folder, "delete_tree", refuse)
    table = dd.from_pandas(pd.DataFrame({0: [1]}), npartitions=1)
    with pytest.raises(errors.SchemaError, match="column names must be text") as found:
        spool.Spool(current_session()).spooled(table.expr)
    assert any("not allowed to delete" in note for note in found.value.__notes__)


def test_damaged_working_files_are_noticed(docs, tmp_path):
    before = spooled()
    ordered = docs.sort_values("n", ascending=False)
    assert len(written(ordered, tmp_path / "a")) == 60
    (folder,) = spooled() - before
    part = folder / "part-000000.parquet"
    content = bytearray(part.read_bytes())
    content[40] ^= 1
    times = part.stat()
    part.write_bytes(content)
    os.utime(part, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(errors.CorruptFileError, match=str(part)):
        written(ordered, tmp_path / "b")
    part.unlink()
    assert len(written(ordered, tmp_path / "c")) == 60


def test_tables_that_differ_are_not_blended_and_nothing_is_written_before(monkeypatch, tmp_path):
    monkeypatch.setattr(spool.Spool, "_written", lambda *_: pytest.fail("written"))
    web, wiki = (dd.from_pandas(rows, npartitions=1) for rows in (ROWS, ROWS.astype({"n": "float64"})))
    for other, said in (
        (wiki, r"has other types than 'web' in 'n' \(double, there int64\)"),
        (web[["text"]], "lacks columns that 'web' has: 'n'"),
    ):
        with pytest.raises(errors.SchemaError, match=f"^blend: the table 'wiki' {said}"):
            cdf.blend({"web": web, "wiki": other}, tmp_path / "out", epochs={"web": 1, "wiki": 1})


def test_values_of_objects_have_no_type_before_they_are_written():
    rows = pd.DataFrame({"n": [1], "tags": [["a"]], "text": pd.array(["b"], "string"), "kind": pd.Categorical(["c"])})
    known = spool.known_meta(dd.from_pandas(rows.astype({"n": object}), npartitions=1)).dtypes
    assert [name for name, dtype in known.items() if has_no_type(dtype)] == ["n", "tags", "kind"]
