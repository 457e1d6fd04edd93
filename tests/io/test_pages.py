# SPDX-License-Identifier: Apache-2.0
"""Pages of Parquet files that are larger than a block: their sizes are read, they are in the plan, and runs keep the budget."""

import json
import random

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.columns import COLUMN_BYTES
from curator_df.core.planning.branches import Branch, fork
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.price import page_bytes_of
from curator_df.io.listing import list_files
from curator_df.io.parquet import row_batches as pages
from curator_df.io.parquet.footers import column_chunks
from curator_df.memory.budget import CLIENT_PRIVATE_BYTES, MARGIN_FRACTION
from curator_df.memory.limits import release_free_memory
from curator_df.memory.sizes import read_size
from curator_df.memory.system import status_bytes
from tests.core.runner.fake_client import inline_cluster

MB = 1_000_000
SLACK = 20 * MB
"""This process, which pytest runs in, holds more from one cluster to the next."""


def texts(rows, size, seed=1):
    """Return texts that hardly compress."""
    letters = np.random.default_rng(seed).integers(97, 123, rows * size, np.uint8).tobytes().decode()
    return [letters[place : place + size] for place in range(0, rows * size, size)]


def chunks_of(path, names=("id", "text")):
    """Return the column chunks of a file's first row group."""
    with pq.ParquetFile(path) as file:
        return column_chunks(file, 0, names)


def one_page(path, rows, size, **how):
    """Write a row group whose texts are one page."""
    table = pa.table({"id": range(rows), "text": texts(rows, size) if "same" not in how else ["t" * size] * rows})
    how.pop("same", None)
    pq.write_table(
        table,
        path,
        row_group_size=rows,
        data_page_size=1 << 30,
        use_dictionary=False,
        **{"write_batch_size": rows, **how},
    )


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_the_sizes_of_all_pages_add_up_to_what_the_footer_has(tmp_path, compression, version):
    rng = random.Random(3)
    table = pa.table(
        {
            "text": [None if rng.random() < 0.1 else "a longer text " * rng.randint(0, 300) for _ in range(3_000)],
            "lists": [[str(n)] * rng.randint(0, 40) for n in range(3_000)],
            "number": range(3_000),
        }
    )
    path = tmp_path / "a.parquet"
    pq.write_table(
        table, path, compression=compression, data_page_version=version, data_page_size=20_000, write_batch_size=50,
        row_group_size=1_300, use_dictionary=["number"], write_page_index=True, write_page_checksum=True
    )  # fmt: skip
    metadata, count = pq.read_metadata(path), 0
    with path.open("rb") as file:
        for group in range(metadata.num_row_groups):
            for place in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(place)
                sizes = list(pages._all_sizes(file, chunk))
                headers = chunk.total_uncompressed_size - sum(sizes)
                assert 10 * len(sizes) < headers < 400 * len(sizes)  # it counts the headers of pages too
                assert next(pages._first_sizes(file, chunk)) in sizes
                count += len(sizes)
    assert count > 80


def test_what_is_no_header_of_a_page_has_no_sizes():
    assert pages._sizes(b"PAR1 and so on") is pages._sizes(b"") is pages._sizes(b"\x15\x00\x15") is None
    assert pages._length(b"\x15\x00") is pages._length(b"\x1d\x00\x00") is None
    assert pages._sizes(b"\x15\x00\x15\x80\x01\x15\x06\x00") == (64, 3)
    assert pages._length(b"\x15\x00\x15\x80\x01\x15\x06\x00after") == 8


def test_large_pages_are_found_and_small_ones_are_not(tmp_path):
    one_page(tmp_path / "a.parquet", 100, 40_000)
    pq.write_table(pa.table({"id": range(100), "text": texts(100, 40_000)}), tmp_path / "b.parquet", write_batch_size=8)
    listing = list_files(str(tmp_path), suffixes=(".parquet",), storage_options=None)
    (page,) = pages.large_pages(listing, 0, chunks_of(tmp_path / "a.parquet"))
    assert (page.column, page.page_bytes) == ("text", pytest.approx(4 * MB, rel=0.01))
    assert page.needed_bytes == pytest.approx(8 * MB, rel=0.01)
    assert pages.large_pages(listing, 1, chunks_of(tmp_path / "b.parquet")) == []
    assert pages.sampled_pages(listing, ["id", "text"]) == {"text": int(1.25 * page.needed_bytes)}
    df = cdf.read_parquet(tmp_path)
    assert lower(df).source.reader_fixed_bytes == int(1.25 * page.needed_bytes)
    assert (
        lower(df[["id"]]).source.reader_fixed_bytes
        == lower(cdf.read_parquet(tmp_path, columns="id")).source.reader_fixed_bytes
        == 0
    )


def test_columns_of_lists_and_names_with_dots_are_told_apart(tmp_path):
    table = pa.table({"a": [texts(100, 40_000)], "a.b": [texts(1, 4_000_000)[0]], "aa": ["short"]})
    pq.write_table(table, tmp_path / "a.parquet", use_dictionary=False)
    listing = list_files(str(tmp_path), suffixes=(".parquet",), storage_options=None)
    found = {
        name: pages.large_pages(listing, 0, chunks_of(tmp_path / "a.parquet", [name])) for name in table.column_names
    }
    assert [page.page_bytes // MB for page in found["a.b"]] == [4]
    assert found["aa"] == []
    assert 4 in [page.page_bytes // MB for page in found["a"]]


@pytest.fixture
def start():
    """Return a function that starts a cluster with so much memory beside what this process holds already."""

    def started(memory, cpus=2):
        release_free_memory()
        held = max(0, status_bytes("RssAnon") - CLIENT_PRIVATE_BYTES)
        return cdf.start_cluster(memory=memory + int(held / (1 - MARGIN_FRACTION)), cpus=cpus, dashboard_port=None)

    return started


def test_pages_that_do_not_fit_are_refused_before_anything_starts_and_what_is_named_fits(tmp_path, start):
    one_page(tmp_path / "a.parquet", 2_400, 25_000)
    df = cdf.read_parquet(tmp_path / "a.parquet")
    with start(600 * MB), pytest.raises(errors.BudgetError, match="pages of the input files") as refused:
        cdf.write_parquet(df, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    enough = read_size("memory", str(refused.value).rpartition("memory=")[2].strip("'")) + SLACK
    with cdf.start_cluster(memory=enough, cpus=2, dashboard_port=None):
        plan = cdf.explain(df)
        receipt = cdf.write_parquet(df, tmp_path / "out")
    assert "pages   150 MB of that in each task, because the files have large pages" in str(plan)
    assert receipt.rows_written == 2_400
    assert not receipt.retries
    assert receipt.measured_bytes <= receipt.projected_bytes <= receipt.allowed_bytes


def many_files(folder, rows, size):
    """Write 16 files of small pages, and one that is smaller, of one large page."""
    folder.mkdir()
    for number in range(16):
        table = pa.table({"id": range(200), "text": texts(200, 2_000, seed=number)})
        pq.write_table(table, folder / f"{number:02}.parquet")
    one_page(folder / "99.parquet", rows, size, same=True, compression="zstd")
    return cdf.read_parquet(folder)


def test_a_large_page_that_no_sample_showed_is_read_alone(tmp_path, start):
    df = many_files(tmp_path / "in", 1_200, 25_000)
    with start(600 * MB):
        assert "pages of the files" not in str(cdf.explain(df))
        receipt = cdf.write_parquet(df, tmp_path / "out")
    assert receipt.retries["exclusive"] >= 1
    assert receipt.rows_written == 16 * 200 + 1_200
    assert receipt.measured_bytes <= receipt.projected_bytes <= receipt.allowed_bytes
    assert pq.read_table(tmp_path / "out")["text"].to_pylist().count("t" * 25_000) == 1_200


def test_a_page_that_does_not_fit_alone_names_the_memory_with_which_the_run_goes_on(tmp_path, start):
    df = many_files(tmp_path / "in", 3_200, 25_000)
    with start(600 * MB), pytest.raises(errors.OversizePageError) as refused:
        cdf.write_parquet(df, tmp_path / "out")
    error = refused.value
    assert (error.path, error.line, error.column) == (str(tmp_path / "in" / "99.parquet"), 1, "text")
    assert error.page_bytes == pytest.approx(80 * MB, rel=0.01)
    assert "99.parquet', row group from row 1: a page of the column 'text' has 80," in str(error)
    assert "smaller pages (in pyarrow, write_batch_size=64)" in str(error)
    enough = read_size("memory", str(error).partition("memory=")[2].split()[0].strip("'")) + SLACK
    with cdf.start_cluster(memory=enough, cpus=2, dashboard_port=None):
        receipt = cdf.write_parquet(df, tmp_path / "out", on_existing="resume")
    assert receipt.rows_written == 16 * 200 + 3_200


def test_a_page_that_grows_later_is_found_when_memory_runs_out(tmp_path, start):
    """The first page of the column is small, so that only reading tells."""
    with pq.ParquetWriter(
        tmp_path / "a.parquet",
        pa.schema([("id", pa.int64()), ("text", pa.string())]),
        use_dictionary=False,
        write_batch_size=2_000,
        data_page_size=1_000,
    ) as writer:
        short, long = ["short"] * 2_000, texts(2_000, 50_000)
        writer.write_table(pa.table({"id": range(4_000), "text": short + long}), row_group_size=4_000)
    df = cdf.read_parquet(tmp_path / "a.parquet")
    assert lower(df).source.reader_fixed_bytes == 0
    with start(600 * MB), pytest.raises(errors.OversizePageError, match="a page of the column 'text' has 100,"):
        cdf.write_parquet(df, tmp_path / "out")


def test_what_is_written_has_small_pages(tmp_path):
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(texts(600, 25_000)))
    )
    with inline_cluster("800MB"):
        cdf.write_parquet(cdf.read_jsonl(tmp_path / "in.jsonl"), tmp_path / "out")
    assert lower(cdf.read_parquet(tmp_path / "out")).source.reader_fixed_bytes == 0


def test_the_decoders_of_nested_columns_count(tmp_path):
    inner = {f"f{number}": number for number in range(1_100)}
    pq.write_table(pa.table({"s": [inner], "l": [[{"a": 1, "b": [2]}]], "n": [1]}), tmp_path / "nested.parquet")
    table = cdf.read_parquet(tmp_path / "nested.parquet")
    assert planned(table) == 103 * COLUMN_BYTES


def planned(table):
    """Return what the plan has for the pages and columns of a task."""
    return page_bytes_of(fork([Branch(lower(table), None)]))


def parquet_table(path, rows):
    pq.write_table(pa.Table.from_pylist(rows), path)
    return cdf.read_parquet(path)


def jsonl_table(path, rows):
    path.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return cdf.read_jsonl(path.with_suffix(".jsonl"))


def csv_table(path, rows):
    pd.DataFrame(rows).to_csv(path.with_suffix(".csv"), index=False)
    return cdf.read_csv(path.with_suffix(".csv"))


def test_blocks_have_fewer_lines_where_nested_columns_have_many_fields(tmp_path):
    """Each line has a value of each field: 1,500 lines of 8,000 fields took 110 MB from 1 MB of text."""
    full = json.dumps({"meta": {f"k{number}": number for number in range(2_000)}})
    (tmp_path / "a.jsonl").write_text("\n".join([full, *['{"meta": {"k7": 7}}'] * 299]) + "\n")
    source = lower(cdf.read_jsonl(tmp_path / "a.jsonl")).source
    (piece,) = list(source.cut(1_000_000))
    sizes = [len(block) for block in source.blocks(piece, block_bytes=200_000)]
    assert sum(sizes) == 300
    assert max(sizes) <= 200_000 // (9 * 2_000)


def test_what_many_columns_take_is_what_the_plan_has_for_them(tmp_path, start):
    taken = []
    with start(2_000 * MB):
        for table_of in (parquet_table, jsonl_table):

            def measured(count, table_of=table_of):
                columns = {f"i{n}": n for n in range(count)} | {f"t{n}": f"{n}" for n in range(count)}
                rows = [columns | {f"l{n}": [n, 1] for n in range(count)}] * 50
                out = tmp_path / f"{table_of.__name__} of {count}"
                return cdf.write_parquet(table_of(tmp_path / f"{count}.parquet", rows), out).measured_bytes

            measured(10)
            few, many = measured(20), measured(1_000)
            taken.append((many - few) / (3 * 980))
    assert all(10_000 < size <= COLUMN_BYTES for size in taken), taken


def test_a_plan_has_room_for_many_columns_of_any_reader_and_step(tmp_path):
    """A plan once had room for those of Parquet files only, though a writer and a block take as much after any reader."""
    wide = [{f"c{number}": number for number in range(1_100)}]
    tables = [table_of(tmp_path / "wide.parquet", wide) for table_of in (parquet_table, jsonl_table, csv_table)]
    narrow = jsonl_table(tmp_path / "narrow.parquet", [{"c0": 1, "text": "a"}])
    nested = jsonl_table(tmp_path / "nested.parquet", [{"rows": wide}])
    widened = narrow.assign(**{f"d{number}": 1 for number in range(1_098)})
    for table in (*tables, nested, widened, cdf.concat([tables[1], tables[2]])):
        assert planned(table) == 100 * COLUMN_BYTES
    for table in (narrow, tables[1][["c1", "c7"]], widened[["d1"]]):
        assert planned(table) == 0
    said = str(cdf.explain(tables[1], memory="1GB", cpus=1))
    assert "4 MB of that in each task, because the files have large pages or the table has many columns" in said


def test_a_plan_has_room_for_the_decoders_of_many_columns(tmp_path):
    """Without it, 10,000 columns under 500 MB ended the process: memory ran out where Arrow cannot report it."""
    pq.write_table(pa.table({f"c{number}": [number] for number in range(3_000)}), tmp_path / "wide.parquet")
    wide = cdf.read_parquet(tmp_path / "wide.parquet")
    assert planned(wide) == 2_000 * COLUMN_BYTES
    assert planned(cdf.read_parquet(tmp_path / "wide.parquet", columns=["c1", "c7"])) == 0
    with pytest.raises(
        errors.BudgetError, match=r"pages of the input files \(80 MB; .*fewer columns.*Use memory='"
    ) as refused:
        cdf.explain(wide, memory="410MB", cpus=1)
    enough = str(refused.value).rpartition("memory=")[2].strip("'")
    assert cdf.explain(wide, memory=enough, cpus=1).projected_bytes <= read_size("memory", enough)
