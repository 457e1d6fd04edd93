# SPDX-License-Identifier: Apache-2.0
"""A table for each value of a column, through whole runs in this process."""

import datetime as dt

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.io.output.files import HIVE_NULL
from tests.core.runner.fake_client import inline_cluster

ODD_TEXTS = [
    "../up",
    "a/b",
    "",
    " ",
    "100%",
    "%41",
    "A",
    "ünï",
    "漢字",
    HIVE_NULL,
    "a=b",
    ".",
    "_x",
    "*",
    "nan",
    "None",
]
COLUMNS = {
    "text": (ODD_TEXTS, pa.string()),
    "numbers": ([0, 1, -7, 10**15], pa.int64()),
    "truth": ([True, False], pa.bool_()),
    "dates": ([dt.date(2024, 2, 29), dt.date(1969, 12, 31)], pa.date32()),
}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


def docs_of(tmp_path, values, kind, column="key", files=2):
    """Write rows of which each has one of the values or none, in turn; return the table and its rows."""
    keys = [*values, None] * 4
    rows = pa.table({"id": list(range(len(keys))), column: pa.array(keys, kind), "text": [f"text {n}" for n in keys]})
    (tmp_path / "in").mkdir()
    for number in range(files):
        start, stop = number * len(keys) // files, (number + 1) * len(keys) // files
        pq.write_table(rows.slice(start, stop - start), tmp_path / f"in/{number}.parquet")
    docs = cdf.read_parquet(tmp_path / "in")
    return docs, docs.compute().reset_index(drop=True)


@pytest.mark.parametrize(("values", "kind"), COLUMNS.values(), ids=COLUMNS)
def test_the_table_of_each_value_has_its_rows_as_they_were(tmp_path, values, kind):
    docs, rows = docs_of(tmp_path, values, kind)
    split = cdf.write_by(docs, tmp_path / "out", partition_on="key")
    assert set(split) == {*values, None}
    assert len(split) == len(values) + 1
    for value, df in split.items():
        expected = rows[rows.key.isna() if value is None else rows.key == value]
        pd.testing.assert_frame_equal(df.compute().reset_index(drop=True), expected.reset_index(drop=True))
        assert df.dtypes.equals(docs.dtypes)
    assert dict(split.rows) == dict.fromkeys([*values, None], 4)
    assert sum(split.receipt.rows_by_folder.values()) == split.receipt.rows_written == len(rows)


def test_the_values_come_most_rows_first_and_the_receipt_shows_them(tmp_path):
    docs, _ = docs_of(tmp_path, ["en", "de"], pa.string())
    split = cdf.write_by(docs.curate.keep_where("key != 'de' or id < 5"), tmp_path / "out", partition_on="key")
    assert list(split.rows.items()) == [(None, 4), ("en", 4), ("de", 2)]
    assert "key=en: 4 rows" in str(split.receipt)
    with pytest.raises(KeyError):
        split["fr"]


def test_a_table_of_a_value_is_the_beginning_of_another_chain(tmp_path):
    docs, _ = docs_of(tmp_path, ["en", "de"], pa.string())
    split = cdf.write_by(docs, tmp_path / "out", partition_on="key")
    chain = split["de"].curate.keep_where("id > 2").curate.drop_exact_duplicates(subset=["text", "key"])
    receipt = cdf.write_parquet(chain, tmp_path / "again")
    assert (receipt.rows_read, receipt.rows_written) == (4, 1)
    assert pd.read_parquet(tmp_path / "again").key.tolist() == ["de"]


def test_other_readers_find_the_column_in_the_names_of_folders(tmp_path):
    docs, _ = docs_of(tmp_path, ["en", "a/b"], pa.string())
    cdf.write_by(docs, tmp_path / "out", partition_on="key")
    read = pq.read_table(tmp_path / "out", partitioning="hive")
    keys = dict(zip(read["id"].to_pylist(), read["key"].to_pylist(), strict=True))
    assert [keys[number] for number in range(12)] == ["en", "a/b", None] * 4


def test_a_complete_split_is_read_back_and_computes_nothing(tmp_path, raise_if_dask_computes):
    docs, _ = docs_of(tmp_path, ["en", "de"], pa.string())
    rows = dict(cdf.write_by(docs, tmp_path / "out", partition_on="key").rows)
    with raise_if_dask_computes():
        assert dict(cdf.write_by(docs, tmp_path / "out", partition_on="key", on_existing="resume").rows) == rows


def test_no_rows_are_no_tables(tmp_path):
    docs, _ = docs_of(tmp_path, ["en", "de"], pa.string())
    assert dict(cdf.write_by(docs[docs.id < 0], tmp_path / "out", partition_on="key")) == {}
    assert len(cdf.write_by(docs, tmp_path / "out", partition_on="key", on_existing="overwrite")) == 3


def test_a_column_may_be_called_anything(tmp_path):
    docs, rows = docs_of(tmp_path, ["x", "y"], pa.string(), column="a=b/c")
    split = cdf.write_by(docs, tmp_path / "out", partition_on="a=b/c")
    assert split["y"].compute().id.tolist() == [1, 4, 7, 10]
    assert split["y"].columns.tolist() == rows.columns.tolist()


@pytest.mark.parametrize("kind", [pa.float64(), pa.list_(pa.int64()), pa.binary()], ids=str)
def test_columns_whose_values_are_no_names_are_refused(tmp_path, kind):
    docs, _ = docs_of(tmp_path, [], kind)
    with pytest.raises(errors.SchemaError, match=r"the column 'key' holds .*, but must hold text, whole numbers"):
        cdf.write_by(docs, tmp_path / "out", partition_on="key")
    assert not (tmp_path / "out").exists()


def test_a_missing_column_and_a_value_that_is_too_long_are_named(tmp_path):
    docs, _ = docs_of(tmp_path, ["x" * 300], pa.string())
    with pytest.raises(
        errors.ColumnError, match="write_by needs the column 'lang'; the table has: 'id', 'key', 'text'"
    ):
        cdf.write_by(docs, tmp_path / "out", partition_on="lang")
    with pytest.raises(errors.ParameterError, match="a value of 300 characters"):
        cdf.write_by(docs, tmp_path / "out", partition_on="key")
