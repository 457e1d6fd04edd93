# SPDX-License-Identifier: Apache-2.0
"""Parquet files with damage: an error that names the file and the column, and no rows that are lost silently."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df.errors import CorruptFileError
from curator_df.io.parquet.reader import read_parquet


@pytest.fixture(scope="module")
def cluster(beside_tests):
    """Return a running cluster."""
    with cdf.start_cluster(memory=beside_tests(700_000_000), cpus=1) as running:
        yield running


def replaced(path, old, new, times=1):
    """Replace bytes of a file."""
    data = path.read_bytes()
    assert data.count(old) == times
    path.write_bytes(data.replace(old, new))
    return path


def with_refused_chunk(path):
    """Write a file whose column ``lang`` is required, and whose chunk has statistics of an optional one."""
    pq.write_table(pa.table({"id": [1, 2], "lang": ["en", None]}), path, store_schema=False)
    return replaced(path, b"\x25\x02\x18\x04lang", b"\x25\x00\x18\x04lang")


def with_short_column(path, promised=400, held=300):
    """Write a file whose footer promises more rows than the pages of the column ``list`` hold."""
    table = pa.table(
        {"id": range(promised), "kind": ["a", "b"] * (promised // 2), "list": [[row, row] for row in range(promised)]}
    )
    pq.write_table(table, path, compression="none", use_dictionary=False, write_batch_size=100, data_page_size=1)
    old, new = (bytes([0x16]) + varint(4 * rows) for rows in (promised, held))  # zigzag, two values a row
    return replaced(path, old, new)


def varint(number):
    """Return a whole number as Thrift's compact protocol writes it."""
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    return bytes([*data, number])


def test_a_chunk_that_pyarrow_refuses_does_not_end_the_process(tmp_path):
    path = with_refused_chunk(tmp_path / "a.parquet")
    with pytest.raises(CorruptFileError, match=r"a\.parquet', row group 0, column 'lang', is not .*: Definition level"):
        read_parquet(path)
    assert read_parquet(path, columns=["id"]).compute()["id"].tolist() == [1, 2]


def test_an_error_of_pyarrow_in_several_lines_is_named_on_one(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": range(1000)}), path)
    data = path.read_bytes()
    path.write_bytes(b"text\n" * 8 + data)  # pages are no longer where the footer says
    with pytest.raises(
        CorruptFileError, match=r"is not a readable Parquet file: Couldn't .*[^.\s]\. Download it"
    ) as found:
        read_parquet(path).compute()
    assert "\n" not in str(found.value)


def test_a_chunk_that_pyarrow_refuses_does_not_end_a_worker(tmp_path, cluster):
    (tmp_path / "in").mkdir()
    names = [tmp_path / f"in/{number:02}.parquet" for number in range(20)]
    for path in names:
        pq.write_table(pa.table({"id": [1, 2], "lang": ["en", "text " * 1000]}), path, store_schema=False)
    with_refused_chunk(names[7])  # smaller than those that are looked at before a run
    df = read_parquet(tmp_path / "in")
    with pytest.raises(CorruptFileError, match=r"07\.parquet', row group 0, column 'lang'"):
        cdf.write_parquet(df, tmp_path / "out")


def test_encrypted_columns_are_an_error_that_names_them(tmp_path):
    encryption = pytest.importorskip("pyarrow.parquet.encryption", reason="this pyarrow is built without encryption")

    class Keys(encryption.KmsClient):
        def wrap_key(self, key_bytes, master_key_identifier):
            return b"k" + key_bytes

        def unwrap_key(self, wrapped_key, master_key_identifier):
            return wrapped_key[1:]

    how = encryption.EncryptionConfiguration(footer_key="f", column_keys={"k": ["text"]}, plaintext_footer=True)
    properties = encryption.CryptoFactory(lambda _: Keys()).file_encryption_properties(
        encryption.KmsConnectionConfig(), how
    )
    with pq.ParquetWriter(
        tmp_path / "a.parquet", pa.schema({"id": pa.int64(), "text": pa.string()}), encryption_properties=properties
    ) as writer:
        writer.write_table(pa.table({"id": [1, 2], "text": ["a", "b"]}))
    with pytest.raises(CorruptFileError, match=r"a\.parquet', row group 0, column 'text',.*If it is encrypted, write"):
        read_parquet(tmp_path)
    assert read_parquet(tmp_path, columns=["id"]).compute()["id"].tolist() == [1, 2]


@pytest.mark.parametrize("columns", [None, ["list"], ["list", "id"]])
@pytest.mark.parametrize("blocksize", ["1kB", "1MB"])
def test_fewer_rows_than_the_footer_promises_are_an_error(tmp_path, columns, blocksize):
    path = with_short_column(tmp_path / "a.parquet")
    df = read_parquet(path, columns=columns, blocksize=blocksize)
    message = r"a\.parquet', row group 0, column 'list', .*(gives 400 rows, but its pages have 300|the same size)"
    with pytest.raises(CorruptFileError, match=message):
        df.compute()
    assert len(read_parquet(path, columns=["id"]).compute()) == 400


@pytest.mark.parametrize(
    "action",
    [
        cdf.checkpoint,
        lambda df, out: cdf.write_jsonl(df[["list"]], out),
        cdf.shuffle_rows,
        lambda df, out: cdf.blend({"a": df, "b": df}, out, weights={"a": 1, "b": 2}),
        lambda df, out: cdf.write_by(df, out, partition_on="kind"),
        lambda df, out: cdf.drop_exact_duplicates(df, subset="kind").pipe(cdf.checkpoint, out),
    ],
    ids=["checkpoint", "projection", "shuffle", "blend", "split", "duplicates"],
)
def test_runs_fail_on_fewer_rows_than_the_footer_promises(tmp_path, cluster, action):
    (tmp_path / "in").mkdir()
    df = read_parquet(with_short_column(tmp_path / "in/a.parquet"))
    with pytest.raises(CorruptFileError, match=r"a\.parquet', row group 0, column 'list'"):
        action(df, tmp_path / "out")


def test_a_footer_whose_numbers_contradict_each_other_is_an_error(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": range(400)}), path, row_group_size=300, compression="none")
    replaced(path, bytes([0x16]) + varint(2 * 400), bytes([0x16]) + varint(2 * 401))
    with pytest.raises(CorruptFileError, match=r"a\.parquet'.*gives 401 rows, but its row groups add up to 400"):
        read_parquet(path)


@pytest.mark.parametrize("columns", [None, ["id"]])
@pytest.mark.parametrize(("first", "last"), [(100, 100), (10, 100), (100, 10), (100, 0), (0, 100)])
@pytest.mark.parametrize("index", [False, True])
def test_joined_files_are_an_error_that_says_so(tmp_path, columns, first, last, index):
    parts, schema = [], pa.schema({"id": pa.int64(), "text": pa.string()})
    for rows in (first, last):
        table = pa.table({"id": range(rows), "text": [f"row {row}" for row in range(rows)]}, schema)
        pq.write_table(table, tmp_path / "part.parquet", write_page_index=index, row_group_size=40)
        parts.append((tmp_path / "part.parquet").read_bytes())
    path = tmp_path / "a.parquet"
    path.write_bytes(b"".join(parts))
    said = (
        rf"a.parquet' has several Parquet files, joined byte by byte: the first one ends after {len(parts[0]):,} bytes"
    )
    with pytest.raises(CorruptFileError, match=said):
        read_parquet(path, columns=columns).compute()
    with pytest.raises(CorruptFileError, match=said):
        cdf.add_contamination(read_parquet(tmp_path / "part.parquet"), path)


@pytest.mark.parametrize("options", [{}, {"write_page_index": True}, {"row_group_size": 1, "write_page_index": True}])
def test_texts_with_the_bytes_between_joined_files_are_read(tmp_path, options):
    texts = ["PAR1PAR1" * 99, "\0\0\0\0PAR1PAR1", "PAR1"]
    pq.write_table(
        pa.table({"text": texts}), tmp_path / "a.parquet", compression="none", use_dictionary=False, **options
    )
    assert read_parquet(tmp_path).compute()["text"].tolist() == texts


def test_checksums_of_pages_are_verified(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"id": [1, 2], "text": ["one text", "another"]}),
        path,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
    )
    replaced(path, b"another", b"an0ther")
    with pytest.raises(CorruptFileError, match=r"a\.parquet', row group 0, column 'text', .*CRC"):
        read_parquet(path).compute()


def test_a_damaged_benchmark_is_an_error_that_names_it(tmp_path):
    path = with_short_column(tmp_path / "benchmark.parquet")
    df = read_parquet(write_text(tmp_path / "a.parquet"))
    with pytest.raises(CorruptFileError, match=r"benchmark\.parquet' is not a readable Parquet file"):
        cdf.add_contamination(df, path)


def write_text(path):
    """Write a table with a text."""
    pq.write_table(pa.table({"text": ["one"]}), path)
    return path
