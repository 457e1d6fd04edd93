# SPDX-License-Identifier: Apache-2.0
"""What `reader_factor` states, measured in a fork of one process on texts that are hard in different ways."""

import gzip
import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curator_df.files.storage import Folder
from curator_df.io.shuffle.sink import ShuffleSink, Taken, stored_schema
from curator_df.io.shuffle.source import ShuffledSource, Stored
from tests.io.warc_files import html, record, response

BLOCK_BYTES = 16_000_000
SLACK_BYTES = 10_000_000
"""What the allocator keeps and the batch that is parsed cost, whatever the block."""
MEASURE = """
import gc, json, os, pickle, sys
import numpy as np
from curator_df.core.ranges.source import among
from curator_df.memory.limits import give_back_large_buffers
from curator_df.memory.system import reset_peak, status_bytes
from curator_df.io.csv.reader import read_csv
from curator_df.io.jsonl.reader import read_jsonl
from curator_df.io.parquet.reader import read_parquet
from curator_df.io.text_files import read_text_files
from curator_df.io.warc.reader import read_warc
from curator_df.kernels.compiling.compiled import compile_named
from curator_df.kernels.compiling.kernel_sets import CSV_RECORDS, EVERY_RUN, JSON_LINES

def source_of(path):
    if path.endswith("shuffled"):
        return pickle.load(open(path, "rb"))
    if path.endswith("texts"):
        return read_text_files(path).expr.operand("func").source
    if path.endswith((".warc", ".warc.gz")):
        return read_warc(path).expr.frame.operand("func").source
    if path.endswith("csv"):
        return read_csv(path, add_source=True).expr.operand("func").source
    read = read_parquet if path.endswith("parquet") else read_jsonl
    texts = ("text", "code") if path.endswith("codes.jsonl") else ("text",)
    return read(path, add_source=True, dtype=dict.fromkeys(texts, "string")).expr.operand("func").source

def measure(path, block_bytes, wanted=None):
    source = source_of(path)
    piece = source.cut(10**12)[0]
    warm = source.blocks(piece, block_bytes=100_000)
    next(warm)
    warm.close()
    del warm
    gc.collect()
    reset_peak()
    wanted = None if wanted is None else among(np.load(wanted))
    before, files, largest = status_bytes("VmRSS"), status_bytes("RssFile"), 0
    for block in source.blocks(piece, block_bytes=block_bytes, wanted=wanted):
        largest = max(largest, len(block))
        del block
    mapped = max(0, status_bytes("RssFile") - files)  # pages of libraries, which do not count (decision 0032)
    return status_bytes("VmHWM") - before - mapped, source.reader_factor

give_back_large_buffers()  # as a worker does
list(compile_named((*CSV_RECORDS, *EVERY_RUN, *JSON_LINES)))  # machine code of kernels is budgeted apart from the reader's memory
gc.collect()
gc.freeze()  # a collection in a fork would walk, and so copy, all that is here already
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        print(json.dumps(measure(*json.loads(line))), flush=True)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        print(flush=True)
"""
TEXTS = {
    "prose": lambda number: f"The {number}th of many lines of plain words. " * 30,
    "one-letter words": lambda number: "a b c d e",
    "escaped CJK": lambda number: "漢字仮名" * 100,
    "nothing": None,
}


@pytest.fixture(scope="module")
def process():
    """One that has imported what workers do, and measures each source in a fork."""
    environment = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    with subprocess.Popen([sys.executable, "-c", MEASURE], **pipes) as running:
        yield running
        running.stdin.close()


def by_hand(*values):
    """Return parameters that run by hand alone, because other ones need more memory."""
    return [pytest.param(value, marks=pytest.mark.proof) for value in values]


@pytest.fixture
def measured(process):
    def measured(path, *how):
        process.stdin.write(json.dumps([str(path), *how]) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    return measured


@pytest.mark.parametrize("kind", [*by_hand("prose", "numbers"), "one-letter words", "quoted lines", "one field"])
def test_csv(measured, tmp_path, kind):
    path = tmp_path / "a.csv"
    rows = {
        "prose": [f"{number},{TEXTS['prose'](number)}" for number in range(1000)],
        "one-letter words": [f"{number},a b c d e" for number in range(1000)],
        "quoted lines": [f'{number},"a ""b""\n{"c" * 70}"' for number in range(1000)],
        "numbers": [f"{number},{number / 8}" for number in range(1000)],
        "one field": [f'1,"{"text, " * 4_000_000}"'],
    }[kind]
    lines = "".join(row + "\n" for row in rows)
    path.write_text("n,text\n" + lines * max(5 * BLOCK_BYTES // 2 // len(lines), 1))
    peak_bytes, factor = measured(path, BLOCK_BYTES)
    assert peak_bytes <= factor * max(BLOCK_BYTES, len(lines) if kind == "one field" else 0) + SLACK_BYTES


def line_offsets(path):
    ends = np.flatnonzero(np.fromfile(path, np.uint8) == ord("\n")) + 1
    return np.concatenate(([0], ends[:-1]))


@pytest.mark.parametrize(
    ("kind", "every"),
    [
        *(pytest.param(kind, 1, marks=() if kind == "one-letter words" else pytest.mark.proof) for kind in TEXTS),
        *(("one-letter words", 2), ("nothing", 2), ("one-letter words", 5), ("nothing", 5)),
    ],
)
def test_json_lines(measured, tmp_path, kind, every):
    path = tmp_path / "a.jsonl"
    rows = [{} if TEXTS[kind] is None else {"id": number, "text": TEXTS[kind](number)} for number in range(1000)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_text(lines * (5 * BLOCK_BYTES // 2 // len(lines)))
    wanted = []
    if every > 1:
        # The address of a line of the first file is its offset. Found in the process that is measured, it would leave
        # free memory there, in pieces.
        np.save(tmp_path / "some.npy", line_offsets(path)[::every])
        wanted.append(str(tmp_path / "some.npy"))
    peak, factor = measured(path, BLOCK_BYTES, *wanted)
    assert peak <= factor * BLOCK_BYTES + SLACK_BYTES


def test_one_long_row(measured, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n' + json.dumps({"text": "漢字 words" * 3_000_000}, ensure_ascii=False) + "\n")
    peak, factor = measured(path, 1_000_000)
    assert peak <= factor * path.stat().st_size + SLACK_BYTES


@pytest.mark.parametrize("words", [3, *by_hand(30), 3_000_000])
def test_numbers_that_are_read_as_text(measured, tmp_path, words):
    path = tmp_path / "codes.jsonl"
    rows = ({"text": "words " * words, "code": number / 7, "n": [{"code": number}]} for number in range(1000))
    with open(path, "w") as file:
        file.write('{"text": "", "code": "a", "n": [{"code": 1}]}\n')
        while file.tell() < 5 * BLOCK_BYTES // 2 and (row := next(rows, None)):
            file.write((json.dumps(row) + "\n") * max(1, 30_000 // words))
    peak, factor = measured(path, BLOCK_BYTES)
    assert peak <= factor * max(BLOCK_BYTES, 6 * words) + SLACK_BYTES


def test_parquet(measured, tmp_path):
    path = tmp_path / "a.parquet"
    texts = [TEXTS["prose"](number) for number in range(3 * BLOCK_BYTES // 1300)]
    pq.write_table(pa.table({"text": texts}), path)
    peak, factor = measured(path, BLOCK_BYTES)
    assert peak <= factor * BLOCK_BYTES + SLACK_BYTES


def test_all_but_one_row_of_parquet_cost_one_more_block(measured, tmp_path):
    path = tmp_path / "a.parquet"
    texts = [TEXTS["prose"](number) for number in range(3 * BLOCK_BYTES // 1300)]
    pq.write_table(pa.table({"text": texts}), path)
    addresses = np.arange(len(texts))
    np.save(tmp_path / "some.npy", addresses[addresses % 1000 > 0])
    peak_of_all, _ = measured(path, BLOCK_BYTES)
    peak, _ = measured(path, BLOCK_BYTES, str(tmp_path / "some.npy"))
    assert peak <= peak_of_all + BLOCK_BYTES + SLACK_BYTES // 2


@pytest.mark.parametrize("coded", [True, False])
def test_a_long_text_held_once_for_many_rows(measured, tmp_path, coded):
    path = tmp_path / "a.parquet"
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), ["x" * 1_000_000])
    pq.write_table(pa.table({"text": texts}), path)
    if not coded:  # the writer makes the dictionary, and the schema does not tell of it
        pq.write_table(pa.table({"text": ["x" * 1_000_000] * 500}), path, row_group_size=1000)
    peak, factor = measured(path, 4_000_000)
    assert peak <= factor * 4_000_000 + SLACK_BYTES


def test_long_rows_after_many_short_ones(measured, tmp_path):
    path = tmp_path / "a.parquet"
    texts = [f"short {number}" for number in range(100_000)] + ["a long text" * 9_000] * 1000
    pq.write_table(pa.table({"text": texts}), path, row_group_size=10**6, use_dictionary=False, write_batch_size=2)
    peak, factor = measured(path, BLOCK_BYTES)
    assert peak <= factor * BLOCK_BYTES + SLACK_BYTES


@pytest.mark.parametrize("texts_of_a_file", [1, *by_hand(3_000), 400_000])
def test_text_files(measured, tmp_path, texts_of_a_file):
    folder = tmp_path / "texts"
    folder.mkdir()
    text = "The lines of a text, 漢字 and plain words.\n" * texts_of_a_file
    for number in range(min(5 * BLOCK_BYTES // 2 // len(text.encode()) + 1, 2_000)):
        (folder / f"{number:06}.txt").write_text(text)
    peak, factor = measured(folder, BLOCK_BYTES)
    assert peak <= factor * max(BLOCK_BYTES, len(text.encode())) + SLACK_BYTES


WORDS = b"<p>The words of a page.</p>"
LONG = 1_500_000
PAGES = {
    "pages": (html(WORDS * 2_000), 3 * BLOCK_BYTES // (2_000 * len(WORDS)), BLOCK_BYTES),
    "requests": (record("request", b"GET / HTTP/1.1\r\n\r\n", WARC_Target_URI="http://a.b/"), 50_000, BLOCK_BYTES),
    "a long page": (html(WORDS * LONG), 1, len(WORDS) * LONG),
    "a long page packed": (response(gzip.compress(WORDS * LONG), "Content-Encoding: gzip"), 1, len(WORDS) * LONG),
}
"""A record, how often it comes, and the bytes of a block."""


@pytest.mark.parametrize("kind", PAGES)
def test_pages_of_crawls(measured, tmp_path, kind):
    one, count, block_bytes = PAGES[kind]
    (tmp_path / "a.warc.gz").write_bytes(gzip.compress(one, 1) * count)
    peak, factor = measured(tmp_path / "a.warc.gz", BLOCK_BYTES if count > 1 else 1_000_000)
    assert peak <= factor * block_bytes + SLACK_BYTES


@pytest.mark.parametrize("words", [5, 5_000])
def test_a_bucket_larger_than_a_block(measured, tmp_path, words):
    text = "word " * words
    rows = pd.DataFrame({"text": pd.array([text] * 2_000, "string[pyarrow]")})
    taken = Taken(0)
    sink = ShuffleSink(Folder(str(tmp_path)), taken, 0)
    writer = sink.open(0, rows.iloc[:0], 0)
    for start in range(0, 5 * BLOCK_BYTES // 2 // (len(text) + 8), len(rows)):
        rows.index = pd.RangeIndex(start, start + len(rows))
        writer.append(rows)
    schema = stored_schema(rows.iloc[:0], taken)
    source = ShuffledSource("x", schema, 0, 1, (Stored(sink.folder, tuple(writer.commit())),))
    (tmp_path / "a.shuffled").write_bytes(pickle.dumps(source))
    peak, factor = measured(tmp_path / "a.shuffled", BLOCK_BYTES)
    assert peak <= factor * BLOCK_BYTES + SLACK_BYTES
