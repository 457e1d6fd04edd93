# SPDX-License-Identifier: Apache-2.0
"""Files of crawls with random changes: each is read or is an error of ours, in little time, and no record vanishes uncounted."""

import collections
import dataclasses
import functools
import gzip
import itertools
import os
import random
import re
import time
import zlib

import brotli
import pytest
import zstandard

import curator_df as cdf
from curator_df import errors
from curator_df.io.listing import list_files
from tests.io.test_http_messages import chunked
from tests.io.warc_files import HEADER, dictionary_frame, html, record, response, source_of, wet, written

PAGE = "<html><head><meta charset=utf-8><title>A page</title><body><p>Grüße, 漢字 and words.</p></body></html>".encode()
MADE = [
    record("warcinfo", b"software: x\r\n"),
    html(PAGE),
    record("request", b"GET / HTTP/1.1\r\n\r\n", WARC_Target_URI="http://a.b/"),
    response(gzip.compress(PAGE, mtime=0), "Content-Type: text/html", "Content-Encoding: gzip"),
    response(chunked(PAGE), "Content-Type: text/html; charset=utf-8", "Transfer-Encoding: chunked"),
    response(brotli.compress(PAGE), "Content-Encoding: br"),
    response(zlib.compress(PAGE), "Content-Encoding: deflate", "Content-Type: text/html"),
    response(chunked(zstandard.compress(PAGE)), "Content-Encoding: zstd", "Transfer-Encoding: chunked"),
    response(PAGE, "Content-Encoding: gzip, br", f"Content-Length: {len(PAGE)}"),
    response("<meta charset=euc-kr>안녕하세요".encode("cp949"), "Content-Type: text/html"),
    written(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\nContent-Type: text/html\n\n" + PAGE, line_end="\n", after=b"\n"
    ),
    written(b"HTTP/1.1 200 OK\r\n\r\nx", HEADER.replace("WARC-Date", "X: a\n b\nWARC-Truncated: length\nWARC-Date")),
    wet("A text.\r\n", 1),
    record("metadata", b"{}"),
    record("resource", PAGE, Content_Type="text/html"),
]
# FastWARC writes a random ID and the time; without them, a seed makes the same file again.
RECORDS = [re.sub(rb"<urn:uuid:[^>]*>|(?<=WARC-Date: )[^\r\n]*", b"2026-01-31T12:00:00Z", one) for one in MADE]
PIECES = [
    b"\r\n",
    b"\n\n",
    b"WARC/1.0\r\n",
    b"HTTP/1.1 ",
    b"Content-Length: 7\r\n",
    b"\x1f\x8b\x08",
    b"\0" * 9,
    b"<!--",
    b"<meta charset=",
]
DICTIONARY = zstandard.train_dictionary(2_000, [wet(f"page {number}", number) for number in range(200)])
WITH_DICTIONARY = zstandard.ZstdCompressor(dict_data=DICTIONARY, write_checksum=True)
PACKERS = {
    "a.warc": b"".join,
    "a.warc.gz": lambda records: b"".join(gzip.compress(one, 1, mtime=0) for one in records),
    "b.warc.gz": lambda records: gzip.compress(b"".join(records), 0, mtime=0),
    "a.warc.zst": lambda records: b"".join(map(zstandard.compress, records)),
    "dictionary.warc.zst": lambda records: b"".join(
        [dictionary_frame(DICTIONARY.as_bytes()), *map(WITH_DICTIONARY.compress, records)]
    ),
    "packed_dictionary.warc.zst": lambda records: b"".join(
        [dictionary_frame(zstandard.compress(DICTIONARY.as_bytes())), *map(WITH_DICTIONARY.compress, records)]
    ),
}


def unpacked(content):
    """Return what frames without checksums hold now; nothing if they cannot be decompressed."""
    try:
        with zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True) as frames:
            return frames.read()
    except zstandard.ZstdError:
        return b""


UNPACKERS = {"a.warc": bytes, "a.warc.zst": unpacked}
"""Content of a changed file without checksums, which may be legal, by kind."""
CHECKED = ("a.warc.gz", "dictionary.warc.zst", "packed_dictionary.warc.zst")
"""Kinds with a checksum for each record, so that a text is never altered without notice."""
LEGAL_HEAD = re.compile(rb"WARC/1\.[01]\r?\n(?:(?:Content-Length: *(?P<length>[0-9]+)|[^\r\n]+)\r?\n)+\r?\n")
LINE_ENDS = re.compile(rb"[\r\n]*")
MOST_SECONDS = 5
TIMES = itertools.count(1_600_000_000)
"""Modification times of the files, in the past: a file that was modified just now is read a clock tick later."""


def changed(content, chance):
    """Return content with a few small changes, none of which removes a whole record."""
    content = bytearray(content)
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(content))
        kind = chance.randrange(5)
        if kind == 0:
            content[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            content[at : at + chance.randrange(1, 9)] = b""
        elif kind == 2:
            content[at:at] = chance.choice(PIECES)
        elif kind == 3:
            content[at : at + 3] = chance.randbytes(3)
        else:
            digit = chance.randrange(len(content))
            digit = next((n for n in range(digit, len(content)) if 48 <= content[n] < 58), at)
            content[digit] = chance.choice(b"0123456789")
    return bytes(content)


def put(path, content):
    path.write_bytes(content)
    modified = next(TIMES)
    os.utime(path, (modified, modified))


@functools.cache
def source_for(path, on_bad_rows):
    return source_of(cdf.read_warc(path, on_bad_rows=on_bad_rows))


def read(path, on_bad_rows):
    """Return the rows, with those that are no pages, and the bad rows."""
    # The table of Dask is made once for each path, because that takes longer than to read these files.
    source = dataclasses.replace(source_for(path, on_bad_rows), listing=list_files(path))
    rows, bad = [], []
    for piece in source.cut(20_000):
        for block in source.blocks(piece, block_bytes=50_000, largest_row_bytes=10**7, on_bad_row=bad.append):
            rows += zip(block.index.tolist(), block["text"].tolist(), strict=True)
    return rows, bad


def legal_records(content):
    """Return the number of records of a file that is legal from its first to its last byte; None for others."""
    at, count = 0, 0
    while at < len(content):
        head = LEGAL_HEAD.match(content, at)
        if head is None:
            return None
        count += 1
        end = head.end() + int(head["length"])
        at = LINE_ENDS.match(content, end).end()
        if at == end or end > len(content):
            return None
    return count


def check(path, content, records, texts=None, plain=None):
    """Read changed content; return what became of it. Every text is one of ``texts``, if they are given.

    No record may vanish. But a changed length can make one record of several, and the ``plain`` file is legal then.
    """
    put(path, content)
    start = time.process_time()
    try:
        rows, bad = read(path, "quarantine")
    except errors.CorruptFileError as exc:
        # Which the header of a frame says that it needs; or a mark of WARC is before the first frame.
        is_known = any(words in str(exc) for words in ("dictionary", "a window of", "records that are not compressed"))
        if not is_known or str(path) not in str(exc):
            raise
        return "error"
    finally:
        assert time.process_time() - start < MOST_SECONDS
    assert len({address for address, _ in rows}) == len(rows)
    assert texts is None or texts.issuperset(text for _, text in rows if isinstance(text, str)), "a text was altered"
    if not bad:
        assert len(rows) >= records or (plain and legal_records(plain) == len(rows)), "a record vanished"
        return "read"
    with pytest.raises(errors.CuratorError):
        read(path, "raise")
    return "quarantined"


def fuzz(folder, records, seeds, names=tuple(PACKERS), failed=None):
    """Read files of the kinds in turn, one for each seed; return what became of them, counted by kind.

    With ``failed`` a file that fails is given to it, and the next one is read.
    """
    outcomes: dict[str, collections.Counter[str]] = {name: collections.Counter() for name in names}
    known = {one: text_of(folder, one) for one in records}
    for number, seed in enumerate(seeds):
        chance, name = random.Random(seed), names[number % len(names)]
        chosen = chance.sample(records, 6)
        texts = {known[one] for one in chosen} if name in CHECKED else None
        if chance.random() < 0.5:
            content = changed(PACKERS[name](chosen), chance)
        else:
            hit, texts = chance.randrange(len(chosen)), None
            chosen[hit] = changed(chosen[hit], chance)
            content = PACKERS[name](chosen)
        # A record that begins a member ends the one before it, whatever the length of that one.
        plain = None if name == "a.warc.gz" else UNPACKERS.get(name, lambda _, chosen=chosen: b"".join(chosen))(content)
        try:
            outcomes[name][check(folder / name, content, len(chosen), texts, plain)] += 1
        except Exception as exc:
            exc.add_note(f"seed {seed}, {name}")
            (folder / f"failed-{name}").write_bytes(content)
            if failed is None:
                raise
            failed(name, seed, exc)
    return outcomes


def text_of(folder, one):
    """Return the text of the page in a record that was not changed; None if it holds no page."""
    put(folder / "one.warc", one)
    ((_, text),), _ = read(folder / "one.warc", "raise")
    return text if isinstance(text, str) else None


def test_changed_files_are_read_or_counted(tmp_path):
    outcomes = fuzz(tmp_path, RECORDS, range(150))
    assert all(set(outcome) >= {"read", "quarantined"} for outcome in outcomes.values())
    assert all(name.endswith(".warc.zst") for name in outcomes if "error" in outcomes[name])


@pytest.mark.proof
@pytest.mark.timeout(3600)
def test_ten_thousand_changed_files_are_read_or_counted(tmp_path):
    assert all(fuzz(tmp_path, RECORDS, range(1_000, 11_000)).values())


@pytest.mark.proof
@pytest.mark.timeout(3600)
def test_changed_files_of_real_records_are_read_or_counted(tmp_path, shared_data):
    records, content = [], (shared_data / "crawl_sample.warc.gz").read_bytes()
    while content:
        member = zlib.decompressobj(wbits=31)
        records.append(member.decompress(content))
        content = member.unused_data
    assert all(fuzz(tmp_path, records, range(2_000)).values())
