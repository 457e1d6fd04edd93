# SPDX-License-Identifier: Apache-2.0
"""Files that are changed, appended to or replaced after they were listed: an error of every reader, never rows of both."""

import codecs
import functools
import gzip
import json
import os
import uuid

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df.core.planning.lowering import lower
from curator_df.errors import InputChangedError, InputError
from curator_df.io.listing import list_files

ROWS = 1_500


@functools.cache
def jsonl(letter):
    return "".join(json.dumps({"text": f"{letter * 30} {n:06}"}) + "\n" for n in range(ROWS)).encode()


@functools.cache
def parquet(letter):
    sink = pa.BufferOutputStream()
    table = pa.table({"text": [f"{letter * 30} {n:06}" for n in range(ROWS)]})
    pq.write_table(table, sink, use_dictionary=False, compression="none", row_group_size=200)
    return sink.getvalue().to_pybytes()


@functools.cache
def warc(letter):
    from tests.io.warc_files import wet

    return b"".join(wet(f"{letter * 30} {n:06}") for n in range(ROWS))


@functools.cache
def members(letter):
    from tests.io.warc_files import wet

    return b"".join(gzip.compress(wet(f"{letter * 30} {n:06}"), 0, mtime=0) for n in range(ROWS))


READERS = {
    "a.jsonl": (cdf.read_jsonl, jsonl),
    "a.csv": (cdf.read_csv, lambda letter: b"text\n" + jsonl(letter).replace(b'"', b"'")),
    "a.jsonl.gz": (cdf.read_jsonl, lambda letter: gzip.compress(jsonl(letter), 0, mtime=0)),
    "a.parquet": (cdf.read_parquet, parquet),
    "a.txt": (cdf.read_text_files, lambda letter: jsonl(letter) * 12),
    "a.warc": (cdf.read_warc, warc),
    "a.warc.gz": (cdf.read_warc, members),
}
SAME_SIZE = "it was last modified at"


@pytest.fixture(params=READERS)
def name(request):
    if ".warc" in request.param:
        pytest.importorskip("fastwarc", reason="fastwarc is in the warc extra")
    return request.param


@pytest.fixture(params=["local", "memory"])
def write(request, tmp_path):
    """Write a file, whole or a byte more; return where it is."""
    if request.param == "local":
        return lambda name, content: (tmp_path / name).write_bytes(content) and str(tmp_path / name)
    store, folder = fsspec.filesystem("memory"), f"/{uuid.uuid4().hex}"
    return lambda name, content: store.pipe_file(f"{folder}/{name}", content) or f"memory:/{folder}/{name}"


def test_a_file_replaced_by_one_of_the_same_size_before_it_is_read(name, write):
    read, content = READERS[name]
    path = write(name, content("a"))
    docs = read(path)
    assert len(docs) == (1 if name == "a.txt" else ROWS)  # and what is cached of the file now is of no use
    write(name, content("b"))
    with pytest.raises(InputChangedError, match=rf"{name}' changed after it was listed: .+ when it was listed\. Rows"):
        docs.compute()
    assert isinstance(InputChangedError("it changed"), InputError)


def test_a_file_that_is_appended_to_before_it_is_read(name, write):
    read, content = READERS[name]
    path = write(name, content("a"))
    docs = read(path)
    write(name, content("a") + content("a")[:100])
    with pytest.raises(InputChangedError, match=r"it has [\d,]+ bytes now, but had [\d,]+ when it was listed"):
        docs.compute()


@pytest.mark.parametrize("change", ["overwritten", "appended to"])
def test_a_file_that_changes_while_it_is_read(name, tmp_path, change, monkeypatch):
    read, content = READERS[name]
    path = tmp_path / name
    path.write_bytes(content("a"))
    source = lower(read(path)).source
    (piece,) = source.cut(1 << 40)
    if name == "a.txt":  # it is one row: the writer comes between two reads of the decoder
        monkeypatch.setattr("curator_df.io.text_files.codecs", Writes(path, content, change))
    blocks = source.blocks(piece, block_bytes=20_000)
    with pytest.raises(InputChangedError, match=rf"{name}' changed after it was listed") as told:  # noqa: PT012
        for number, _ in enumerate(blocks):
            if number == 0:
                put(path, content, change)
    assert (SAME_SIZE in str(told.value)) == (change == "overwritten")


def put(path, content, change):
    with open(path, "r+b" if change == "overwritten" else "ab") as file:
        file.write(content("b"))


class Writes:
    """The module codecs, whose decoder writes once to the file that it decodes."""

    def __init__(self, path, content, change):
        self._change = path, content, change

    def getincrementaldecoder(self, encoding):
        decoder = codecs.getincrementaldecoder(encoding)

        def decode(this, data, final=False):
            if self._change is not None:
                put(*self._change)
                self._change = None
            return decoder.decode(this, data, final)

        return type("Decoder", (decoder,), {"decode": decode})


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress(b'{"id": 1}\n') if name.endswith(".gz") else b'{"id": 1}\n')
    df = cdf.read_jsonl(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputChangedError, match=f"{name}' changed after it was listed: it is a pipe or a device now"):
        df.compute()


@pytest.mark.parametrize("on_bad_rows", ["raise", "quarantine"])
def test_a_row_torn_by_a_writer_is_not_a_bad_row(tmp_path, on_bad_rows):
    path = tmp_path / "a.jsonl"
    path.write_bytes(jsonl("a"))
    source = lower(cdf.read_jsonl(path, on_bad_rows=on_bad_rows)).source
    (piece,) = source.cut(1 << 40)
    blocks = source.blocks(piece, block_bytes=20_000, on_bad_row=lambda row: None)
    next(blocks)
    with open(path, "r+b") as file:
        file.write(b"x" * len(jsonl("a")))
    with pytest.raises(InputChangedError, match="changed after it was listed"):
        list(blocks)


def test_a_file_deleted_while_it_is_read_from_a_store():
    store = fsspec.filesystem("memory")
    store.pipe_file("/deleted/a.jsonl", jsonl("a"))
    source = lower(cdf.read_jsonl("memory://deleted/a.jsonl")).source
    blocks = source.blocks(source.cut(1 << 40)[0], block_bytes=20_000)
    next(blocks)
    store.rm("/deleted/a.jsonl")
    with pytest.raises(InputChangedError, match="it does not exist now, but did when it was listed"):
        list(blocks)


def test_a_store_that_writes_its_etags_otherwise_in_a_list(monkeypatch):
    store = fsspec.filesystem("memory")
    store.pipe_file("/quoted/a.jsonl", jsonl("a"))
    real, info = type(store).ls, type(store).info
    unquoted = {**info(store, "/quoted/a.jsonl"), "etag": "1"}
    monkeypatch.setattr(type(store), "glob", lambda *_, **__: {"/quoted/a.jsonl": unquoted})
    monkeypatch.setattr(type(store), "ls", lambda *_, **__: [unquoted])
    monkeypatch.setattr(type(store), "info", lambda self, path, **_: {**info(self, path), "etag": '"1"'})
    docs = cdf.read_jsonl("memory://quoted/*.jsonl")
    assert len(docs) == ROWS
    monkeypatch.setattr(type(store), "ls", real)
    with pytest.raises(
        InputChangedError, match="its ETag or modification time is not the one that it had when it was listed"
    ):
        docs.compute()


def test_a_change_right_after_the_listing_has_another_time(tmp_path):
    path = tmp_path / "a.jsonl"
    for number in range(20):
        path.write_bytes(b'{"n": %d}\n' % (number % 10))
        listed = list_files(path).listed(str(path))
        path.write_bytes(b'{"n": %d}\n' % (9 - number % 10))
        assert path.stat().st_mtime_ns != listed.stamp
    seconds = int(path.stat().st_mtime) + 1
    os.utime(path, (seconds, seconds))  # as a file system with whole seconds has it
    assert list_files(path).listed(str(path)) == (9, seconds * 1_000_000_000)


def test_files_of_a_large_listing_are_found_by_their_path(tmp_path):
    for number in range(300):
        (tmp_path / f"{number}.jsonl").write_bytes(b"\n" * number)
    listing = list_files([tmp_path / "7.jsonl", tmp_path])
    assert [listing.listed(path).size_bytes for path in listing.paths] == listing.sizes.tolist()
