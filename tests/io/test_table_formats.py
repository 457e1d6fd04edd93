# SPDX-License-Identifier: Apache-2.0
"""`read_delta` and `read_iceberg` on tables that deltalake and pyiceberg wrote."""

from __future__ import annotations

import pathlib

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df import errors

ROWS = pa.table({"text": [f"row {number} é" for number in range(10)], "lang": ["en", "pt/br"] * 5, "n": range(10)})


def computed(docs):
    return docs.compute(scheduler="synchronous")


@pytest.fixture
def delta(tmp_path):
    deltalake = pytest.importorskip("deltalake", reason="needs the delta extra (deltalake is not installed)")
    deltalake.write_deltalake(tmp_path / "table", ROWS, partition_by=["lang"])
    return deltalake


def test_a_version_of_a_delta_table(delta, tmp_path):
    place = tmp_path / "table"
    docs = cdf.read_delta(place)
    delta.write_deltalake(place, ROWS.slice(0, 3), mode="append")
    delta.DeltaTable(place).delete("n = 4")  # rewrites a file, and the old one stays in the folder
    first = computed(docs)  # the version was pinned when the function was called
    assert sorted(first["text"]) == sorted(ROWS["text"].to_pylist())
    assert first.set_index("n")["lang"].to_dict() == dict(zip(range(10), ROWS["lang"].to_pylist(), strict=True))
    assert computed(cdf.read_delta(place, version=0)).equals(first)
    latest = cdf.read_delta(str(place), columns=["n", "lang"], add_source=True)
    assert latest.columns.tolist() == ["n", "lang", "source_file", "source_line"]
    assert sorted(computed(latest)["n"]) == sorted([*(n for n in range(10) if n != 4), 0, 1, 2])
    assert computed(latest).index.is_monotonic_increasing
    assert not set(computed(latest)["source_file"]) <= set(
        computed(cdf.read_delta(place, version=0, add_source=True))["source_file"]
    )


def test_a_delta_table_in_a_folder_with_any_name(delta, tmp_path):
    place = tmp_path / "a é table"
    rows = pa.table({"text": ["a", "b"], "lang": ["a b", "c%20/d"]})
    delta.write_deltalake(place, rows, partition_by=["lang"])
    found = computed(cdf.read_delta(place))
    assert sorted(zip(found["text"], found["lang"], strict=True)) == [("a", "a b"), ("b", "c%20/d")]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([0, 1_577_934_245_000_006, None], pa.timestamp("us", "UTC")),
        pa.array([0, 1_577_934_245_000_006, None], pa.timestamp("us")),
        pa.array([1e20, 0.5, -2.0]),
        pa.array([False, None, True]),
        pa.array([0, 18_000, None], pa.date32()),
        pa.array([110, 200, 1]).cast(pa.decimal128(21, 2)),
    ],
    ids=lambda values: str(values.type),
)
def test_partitions_of_any_type_are_those_of_the_paths(delta, tmp_path, values):
    rows = pa.table({"text": ["a", "b", "c"], "part": values})
    delta.write_deltalake(tmp_path / "other", rows, partition_by=["part"])
    found = computed(cdf.read_delta(tmp_path / "other"))
    assert sorted(found["text"]) == ["a", "b", "c"]
    assert found["part"].isna().sum() == values.null_count


def test_a_partition_that_a_path_does_not_say_is_refused(delta, tmp_path):
    rows = pa.table({"text": ["a", "b"], "part": ["", "x"]})  # an empty text is a null of the table
    delta.write_deltalake(tmp_path / "other", rows, partition_by=["part"])
    with pytest.raises(
        errors.InputError, match=r"partition column 'part' is None for the file 'part=.*has no folder that says so"
    ):
        cdf.read_delta(tmp_path / "other")


def test_a_run_of_a_delta_table_is_resumed_at_its_version(delta, tmp_path):
    from tests.core.runner.fake_client import inline_cluster

    place, out = tmp_path / "table", str(tmp_path / "out")
    with inline_cluster():
        assert cdf.write_parquet(cdf.read_delta(place), out).rows_written == 10
        delta.write_deltalake(place, ROWS.slice(0, 3), mode="append")
        assert cdf.write_parquet(cdf.read_delta(place, version=0), out, on_existing="resume").rows_written == 10
        with pytest.raises(errors.CuratorError, match=r"(?i)cannot resume"):
            cdf.write_parquet(cdf.read_delta(place), out, on_existing="resume")
    assert len(pd.read_parquet(out)) == 10


def test_a_column_that_was_added_to_a_delta_table_is_null_before(delta, tmp_path):
    more = ROWS.slice(0, 2).append_column("score", pa.array([0.5, None], pa.float32()))
    delta.write_deltalake(tmp_path / "table", more, mode="append", schema_mode="merge")
    rows = computed(cdf.read_delta(tmp_path / "table"))
    assert len(rows) == 12
    assert rows["score"].notna().sum() == 1
    assert rows.dtypes["score"] == "Float32"


def test_what_a_list_of_files_does_not_say_is_refused(delta, tmp_path, monkeypatch):
    place = tmp_path / "table"
    with pytest.raises(errors.InputError, match=r"cannot be read as a Delta table"):
        cdf.read_delta(tmp_path / "nothing")
    for version in (7, 2**70):
        with pytest.raises(errors.InputError, match=r"cannot be read as a Delta table"):
            cdf.read_delta(place, version=version)
    with pytest.raises(errors.ParameterError, match=r"read_delta: version='2026-01-01' must be a whole number"):
        cdf.read_delta(place, version="2026-01-01")
    features = {"delta.enableDeletionVectors": "true"}
    delta.DeltaTable.create(tmp_path / "other", schema=delta.DeltaTable(place).schema(), configuration=features)
    delta.write_deltalake(tmp_path / "other", ROWS, mode="append")
    assert len(computed(cdf.read_delta(tmp_path / "other"))) == 10  # no row was deleted
    vectors = pa.record_batch({"filepath": ["a"], "selection_vector": [[True, False]]})
    monkeypatch.setattr(delta.DeltaTable, "deletion_vectors", lambda _: iter([vectors]))
    with pytest.raises(errors.InputError, match=r"cannot be read: its files have deleted rows"):
        cdf.read_delta(tmp_path / "other")
    monkeypatch.setattr(delta.DeltaTable, "protocol", lambda _: type("P", (), {"reader_features": ["columnMapping"]}))
    with pytest.raises(errors.InputError, match=r"other names of columns than the table \(columnMapping\)"):
        cdf.read_delta(place)
    monkeypatch.setattr(delta.DeltaTable, "protocol", lambda _: type("P", (), {"reader_features": ["typeWidening"]}))
    with pytest.raises(errors.InputError, match=r"it uses typeWidening, which read_delta does not support"):
        cdf.read_delta(place)


def test_a_damaged_log_of_a_delta_table_is_said_in_one_line(delta, tmp_path):
    (log,) = (tmp_path / "table" / "_delta_log").glob("*.json")
    log.write_text(log.read_text() + "junk\n")
    with pytest.raises(errors.InputError, match=r"cannot be read as a Delta table: .*'j'.*\. Check the path") as told:
        cdf.read_delta(tmp_path / "table")
    assert "\n" not in str(told.value)
    assert "unknown" not in str(told.value)
    with pytest.raises(errors.ParameterError, match="version=-1 must be 0 or more"):
        cdf.read_delta(tmp_path / "table", version=-1)


@pytest.fixture
def catalog(tmp_path):
    pytest.importorskip("pyiceberg", reason="needs the iceberg extra (pyiceberg is not installed)")
    sql = pytest.importorskip("pyiceberg.catalog.sql", reason="needs a catalog of pyiceberg (sqlalchemy)")
    made = sql.SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    made.create_namespace("db")
    yield made
    made.destroy_tables()
    made.close()


def test_a_snapshot_of_an_iceberg_table(catalog):
    table = catalog.create_table("db.docs", schema=ROWS.schema)
    table.append(ROWS)
    first, docs = table.current_snapshot().snapshot_id, cdf.read_iceberg(table)
    table.append(ROWS.slice(0, 3))
    rows = computed(docs)
    assert rows["text"].tolist() == ROWS["text"].to_pylist()
    latest = cdf.read_iceberg(table.metadata_location, columns="n")
    assert sorted(computed(latest)["n"]) == sorted([*range(10), 0, 1, 2])
    assert computed(cdf.read_iceberg(table.metadata_location, snapshot=first)).equals(rows)
    table.delete("n = 4")  # rewrites the files
    assert sorted(computed(cdf.read_iceberg(table))["n"]) == sorted([*(n for n in range(10) if n != 4), 0, 1, 2])


def test_addresses_of_an_iceberg_table_on_this_machine_may_have_one_slash(catalog, tmp_path):
    table = catalog.create_table("db.docs", schema=ROWS.schema, location=f"file:{tmp_path}/as Hadoop writes it")
    table.append(ROWS)
    assert computed(cdf.read_iceberg(table))["n"].tolist() == list(range(10))


def test_an_iceberg_table_with_more_than_files_is_refused(catalog, tmp_path):
    from pyiceberg.types import FloatType

    with pytest.raises(errors.InputError, match=r"cannot be read as an Iceberg table"):
        cdf.read_iceberg(tmp_path / "nothing.metadata.json")
    table = catalog.create_table("db.docs", schema=ROWS.schema)
    with pytest.raises(errors.InputError, match="has no rows"):
        cdf.read_iceberg(table)
    table.append(ROWS)
    with pytest.raises(errors.InputError, match=r"cannot be read as an Iceberg table"):
        cdf.read_iceberg(table, snapshot=7)
    with table.update_schema() as update:
        update.add_column("score", FloatType())
    assert computed(cdf.read_iceberg(table))["score"].isna().all()
    with table.update_schema() as update:
        update.rename_column("text", "body")
    with pytest.raises(errors.InputError, match=r"cannot be read: columns were renamed"):
        cdf.read_iceberg(table)


def test_renamed_fields_of_a_struct_are_refused(catalog):
    rows = pa.table({"text": ["a"], "meta": [{"one": 1, "two": 2}]})
    table = catalog.create_table("db.docs", schema=rows.schema)
    table.append(rows)
    with table.update_schema() as update:
        update.rename_column(("meta", "one"), "three")
    with pytest.raises(errors.InputError, match="columns were renamed, or dropped and added again"):
        cdf.read_iceberg(table)


def test_a_column_that_was_dropped_from_an_iceberg_table_is_not_read(catalog):
    table = catalog.create_table("db.docs", schema=ROWS.schema)
    table.append(ROWS)
    before = table.current_snapshot().snapshot_id
    with table.update_schema() as update:
        update.delete_column("lang")
    table.append(ROWS.select(["text", "n"]))
    docs = cdf.read_iceberg(table)
    assert (docs.columns.tolist(), len(computed(docs))) == (["text", "n"], 20)
    assert cdf.read_iceberg(table, snapshot=before).columns.tolist() == ["text", "lang", "n"]


def test_imported_iceberg_files_need_no_partitions(catalog, tmp_path):
    pq.write_table(ROWS, tmp_path / "a.parquet")
    table = catalog.create_table("db.docs", schema=ROWS.schema)
    table.add_files([f"file://{tmp_path}/a.parquet"])
    assert computed(cdf.read_iceberg(table))["n"].tolist() == list(range(10))
    with table.update_spec() as update:
        update.add_identity("lang")
    with table.update_spec() as update:
        update.remove_field("lang")  # files that were imported before still have no such column
    with pytest.raises(errors.InputError, match="their partition columns may be only in the table's metadata"):
        cdf.read_iceberg(table)


@pytest.mark.parametrize("suffix", [".metadata.json", ".avro"])
@pytest.mark.parametrize("content", [b"", b"[]", b"Obj\x01" + b"\xff" * 400, None])
def test_damaged_metadata_of_an_iceberg_table_is_our_error(catalog, tmp_path, suffix, content):
    table = catalog.create_table("db.docs", schema=ROWS.schema)
    table.append(ROWS)
    metadata = table.metadata_location.removeprefix("file://")
    damaged = [metadata] if suffix != ".avro" else list(tmp_path.rglob("*.avro"))
    assert damaged
    for path in map(pathlib.Path, damaged):
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(errors.InputError, match=r"cannot be read as an Iceberg table: .*\. Check the path") as told:
        cdf.read_iceberg(metadata)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("table", [None, 5])
def test_a_table_of_another_type_is_refused(catalog, table):
    with pytest.raises(errors.ParameterError, match=f"table={table} must be a table of pyiceberg, or the path"):
        cdf.read_iceberg(table)
