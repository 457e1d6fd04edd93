# SPDX-License-Identifier: Apache-2.0
"""Types of Parquet columns, alone and inside of lists, structs and maps: each is read right, or refused with the way out."""

import base64
import datetime as dt
import decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df.core.host_blocks import block_dtype
from curator_df.errors import SchemaError
from curator_df.io.parquet.reader import read_parquet
from tests.core.runner.fake_client import inline_cluster

UUID = b"0123456789abcdef"
ROWS = 12


def stored(kind, values):
    """Return an array of an extension type."""
    return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))


PAIRS = {
    "uuid": (pa.uuid(), [UUID, None]),
    "json": (pa.json_(), ['{"a": 1}', None]),
    "bool8": (pa.bool8(), [1, None]),
    "opaque": (pa.opaque(pa.int64(), "kind", "vendor"), [5, None]),
    "tensor": (pa.fixed_shape_tensor(pa.float32(), [2]), [[1.0, 2.0], [3.0, 4.0]]),
    "binary_view": (pa.binary_view(), [b"x", None]),
    "string_view": (pa.string_view(), ["a text longer than twelve bytes", None]),
    "large_string": (pa.large_string(), ["x", None]),
    "large_binary": (pa.large_binary(), [b"x", None]),
    "fixed_binary": (pa.binary(4), [b"abcd", None]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["x", None]),
    "dictionary_of_numbers": (pa.dictionary(pa.int8(), pa.int64()), [7, None]),
    "decimal32": (pa.decimal32(5, 1), [decimal.Decimal("1.5"), None]),
    "decimal64": (pa.decimal64(15, 1), [decimal.Decimal("-1.5"), None]),
    "decimal128": (pa.decimal128(38, 1), [decimal.Decimal("1.5"), None]),
    "decimal256": (pa.decimal256(76, 2), [decimal.Decimal("1.25"), None]),
    "half": (pa.float16(), [np.float16(1.5), None]),
    "duration": (pa.duration("ns"), [5000, None]),
    "time32": (pa.time32("ms"), [dt.time(12, 30), None]),
    "time64": (pa.time64("us"), [dt.time(12, 30, 0, 7), None]),
    "date32": (pa.date32(), [dt.date(9999, 12, 31), None]),
    "date64": (pa.date64(), [dt.date(1, 1, 1), None]),
    "far": (pa.timestamp("us"), [dt.datetime(9999, 12, 31), dt.datetime(1, 1, 1)]),
    "zoned": (pa.timestamp("ms", "Europe/Berlin"), [5, None]),
    "uint64": (pa.uint64(), [2**64 - 1, None]),
    "uint8": (pa.uint8(), [255, None]),
    "null": (pa.null(), [None, None]),
}


def leaf(kind):
    """Return an array of `ROWS` values, and the array of what a block holds of it inside of another."""
    arrow, pair = PAIRS[kind]
    values = [pair[row % 2] for row in range(ROWS)]
    array = stored(arrow, values) if isinstance(arrow, pa.BaseExtensionType) else pa.array(values, arrow)
    plain = array.storage if isinstance(arrow, pa.BaseExtensionType) else array
    if pa.types.is_dictionary(arrow):
        plain = array.dictionary_decode()
    if kind in ("binary_view", "string_view"):
        plain = pa.array(values, pa.binary() if kind == "binary_view" else pa.string())
    return array, plain


def offsets(kind=pa.int32()):  # noqa: B008 - a constant
    return pa.array(range(ROWS + 1), kind)


WRAPS = {
    "struct": lambda array: pa.StructArray.from_arrays([array], ["inner"]),
    "list": lambda array: pa.ListArray.from_arrays(offsets(), array),
    "large_list": lambda array: pa.LargeListArray.from_arrays(offsets(pa.int64()), array),
    "fixed_list": lambda array: pa.FixedSizeListArray.from_arrays(array, 1),
    "map": lambda array: pa.MapArray.from_arrays(offsets(), pa.array(["k"] * ROWS), array),
    "list_of_structs": lambda array: pa.ListArray.from_arrays(
        offsets(), pa.StructArray.from_arrays([array, pa.array(range(ROWS))], ["inner", "other"])
    ),
    "struct_of_lists": lambda array: pa.StructArray.from_arrays(
        [pa.ListArray.from_arrays(offsets(), array)], ["inner"]
    ),
}


def write(path, array):
    """Write a column; the writer of pyarrow does not slice views, so that there is one row group."""
    pq.write_table(pa.table({"id": range(ROWS), "v": array}), path)
    return path


def found(block):
    return pa.Table.from_pandas(block, preserve_index=False)["v"].combine_chunks()


@pytest.mark.parametrize("kind", list(PAIRS))
def test_a_column_is_read_right(tmp_path, kind):
    array, plain = leaf(kind)
    path = write(tmp_path / "a.parquet", array)
    for blocksize in ("1MB", 1):
        df = read_parquet(path, blocksize=blocksize)
        block = df.compute()
        read = found(block)
        read = read.storage if isinstance(read, pa.ExtensionArray) else read
        assert read.cast(plain.type) if read.type != plain.type else read == plain
        assert block["v"].dtype == df["v"].dtype == block_dtype(pa.Array.from_pandas(df._meta["v"]).type)
        assert df["id"].compute().tolist() == list(range(ROWS))
        assert len(df.head(1)) == 1


NESTED = [
    (kind, wrap) for kind in PAIRS for wrap in WRAPS if "view" not in kind or wrap != "list_of_structs"
]  # pyarrow's writer does not slice views
DIAGONAL = [pair for number, pair in enumerate(NESTED) if number % 3 == number // len(WRAPS) % 3]
"""A third of them, in which each kind and each wrap occurs."""


def test_the_pairs_that_run_always_have_each_kind_and_each_wrap():
    assert {kind for kind, _ in DIAGONAL} == set(PAIRS)
    assert {wrap for _, wrap in DIAGONAL} == set(WRAPS)


@pytest.mark.parametrize(
    ("kind", "wrap"),
    [pytest.param(*pair, marks=() if pair in DIAGONAL else pytest.mark.proof) for pair in NESTED],
)
def test_a_nested_column_is_read_as_the_type_that_stores_it(tmp_path, kind, wrap):
    array, plain = leaf(kind)
    path = write(tmp_path / "a.parquet", WRAPS[wrap](array))
    for blocksize in ("1MB", 1):
        block = read_parquet(path, blocksize=blocksize).compute()
        assert found(block).to_pylist() == WRAPS[wrap](plain).to_pylist()
    written = tmp_path / "b.parquet"
    pq.write_table(pa.Table.from_pandas(block, preserve_index=False), written)
    assert found(read_parquet(written).compute()).to_pylist() == WRAPS[wrap](plain).to_pylist()


def test_a_run_keeps_nested_columns(tmp_path):
    (tmp_path / "in").mkdir()
    columns = {
        f"{kind} {wrap}": (kind, wrap) for kind in PAIRS for wrap in WRAPS if "view" not in kind and kind != "null"
    }
    made = {name: tuple(WRAPS[wrap](array) for array in leaf(kind)) for name, (kind, wrap) in columns.items()}
    pq.write_table(
        pa.table({name: array for name, (array, _) in made.items()}), tmp_path / "in/a.parquet", row_group_size=5
    )
    with inline_cluster("700MB", 1):
        cdf.write_parquet(read_parquet(tmp_path / "in"), tmp_path / "out")
    rows = pq.read_table(tmp_path / "out")
    for name, (_, plain) in made.items():
        assert rows[name].to_pylist() == plain.to_pylist(), name


def test_dictionaries_in_structs_that_differ_from_one_row_group_to_the_next(tmp_path):
    texts = [f"text {row}" for row in range(100)]
    array = pa.StructArray.from_arrays([pa.array(texts).dictionary_encode()], ["inner"])
    pq.write_table(pa.table({"v": array}), tmp_path / "a.parquet", row_group_size=7)
    assert [row["inner"] for row in read_parquet(tmp_path).compute()["v"]] == texts


def test_a_type_that_pyarrow_cannot_convert_is_refused_with_the_way_out(tmp_path):
    array = pa.ListViewArray.from_arrays(
        pa.array(range(ROWS), pa.int32()), pa.array([1] * ROWS, pa.int32()), leaf("uuid")[0]
    )
    path = write(tmp_path / "a.parquet", array)
    with pytest.raises(
        SchemaError, match=r"a\.parquet': the column 'v' has the type list_view<.*Leave it out with columns="
    ):
        read_parquet(path).compute()
    assert read_parquet(path, columns=["id"]).compute()["id"].tolist() == list(range(ROWS))


@pytest.mark.parametrize("nested", [False, True])
def test_a_number_of_128_bits_is_refused_with_its_file_and_column(tmp_path, nested):
    """polars writes one as 16 bytes, with a type in the schema of Arrow that pyarrow cannot read."""

    def columns(kind):
        return pa.schema([("text", pa.string()), ("wide", pa.struct([("n", kind)]) if nested else kind)])

    described = columns(pa.int64()).serialize().to_pybytes()
    assert described.count((64).to_bytes(4, "little")) == 1
    described = described.replace((64).to_bytes(4, "little"), (128).to_bytes(4, "little"))
    bytes_of_number = (2**100).to_bytes(16, "little")
    values = {"text": ["x"], "wide": [{"n": bytes_of_number} if nested else bytes_of_number]}
    with pq.ParquetWriter(tmp_path / "a.parquet", columns(pa.binary(16)), store_schema=False) as file:
        file.write_table(pa.table(values, columns(pa.binary(16))))
        file.add_key_value_metadata({"ARROW:schema": base64.b64encode(described)})
    wanted = (
        rf"a\.parquet' has a column .*, '{'wide.n' if nested else 'wide'}' has 16 bytes a value.*another type for it"
    )
    with pytest.raises(SchemaError, match=wanted):
        read_parquet(tmp_path / "a.parquet", on_bad_rows="quarantine")
