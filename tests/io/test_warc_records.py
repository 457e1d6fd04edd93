# SPDX-License-Identifier: Apache-2.0
"""Where the records of a WARC file begin: members found from any byte, and files that are damaged, cut, or packed oddly."""

import gzip
import io
import random

import fsspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import curator_df as cdf
from curator_df import errors
from curator_df.io.gzip_members import find_member
from tests.io.warc_files import html, members, pieces_of, record, rows_of, source_of, stored, wet

RANDOM = random.Random(7)
TEXTS = [RANDOM.randbytes(RANDOM.randrange(10, 2_000)).hex() for _ in range(160)]
RECORDS = [wet(text, number) for number, text in enumerate(TEXTS)]
CUTS = (9_000, 100_000, 10**9)
"""Decompressed bytes of a range."""


def source_for(path, content):
    path.write_bytes(content)
    return source_of(cdf.read_warc(path, on_bad_rows="quarantine"))


def read_in_ranges(path, content):
    """Return rows and bad records, after checking that they are the same for every cut."""
    source = source_for(path, content)
    results = [rows_of(source, piece_bytes) for piece_bytes in CUTS]
    assert all(result == results[0] for result in results)
    assert path.suffix != ".gz" or len(source.cut(CUTS[0])) > 10
    return results[0]


def test_a_file_is_cut_anywhere_and_its_rows_are_the_same(tmp_path):
    content, starts = members(RECORDS)
    assert read_in_ranges(tmp_path / "a.wet.gz", content) == (list(zip(starts, TEXTS, strict=True)), [])
    source = source_of(cdf.read_warc(tmp_path / "a.wet.gz"))
    full = sum(bool(list(source.blocks(piece, block_bytes=10**6))) for piece in source.cut(CUTS[0]))
    assert full > 5


def test_zero_bytes_may_pad_the_end(tmp_path):
    content, starts = members(RECORDS)
    assert read_in_ranges(tmp_path / "a.wet.gz", content + bytes(70_000)) == (list(zip(starts, TEXTS, strict=True)), [])


@pytest.mark.parametrize("pack", [gzip.compress, lambda content: pieces_of(content, 3_000), stored])
def test_files_with_other_members_are_read_from_their_beginning(tmp_path, pack):
    rows, bad = read_in_ranges(tmp_path / "a.wet.gz", pack(b"".join(RECORDS)))
    assert [text for _, text in rows] == TEXTS
    addresses = [address for address, _ in rows]
    assert addresses == sorted(set(addresses))
    assert not bad


def test_a_crawl_in_a_page_is_no_beginning(tmp_path):
    inner, _ = members([wet("inner " * 10, number) for number in range(100)])
    page = html(inner, "latin-1")
    records = [*RECORDS[:60], page, *RECORDS[60:]]
    content, starts = members(records, level=0)
    at = content.find(inner[:200])
    assert at > 0  # its members lie there as they are, and begin with records
    assert find_member(io.BytesIO(content), at, at + 1, proof_bytes=1) == at
    assert find_member(io.BytesIO(content), at, len(content)) == starts[61]
    rows, bad = read_in_ranges(tmp_path / "a.warc.gz", content)
    assert [address for address, _ in rows] == starts
    assert not bad


def test_a_damaged_member_is_one_bad_record_whatever_the_cut(tmp_path):
    content, starts = members(RECORDS)
    for number, place in ((50, 0), (51, 3), (159, 20)):
        damaged = bytearray(content)
        damaged[starts[number] + place] ^= 0xFF
        rows, bad = read_in_ranges(tmp_path / "a.wet.gz", bytes(damaged))
        assert [address for address, _ in rows] == starts[:number] + starts[number + 1 :]
        assert [offset for offset, _ in bad] == [starts[number]]
        assert "damaged" in bad[0][1]


@pytest.mark.parametrize("size", [10, 30_000, 3_000_000])
def test_a_wrong_checksum_is_seen_before_the_record_counts(tmp_path, size):
    incompressible = RANDOM.randbytes(size).hex()
    content, starts = members([wet("one"), wet(incompressible), wet("two")])
    damaged = bytearray(content)
    damaged[starts[2] - 6] ^= 0xFF
    source = source_for(tmp_path / "a.wet.gz", bytes(damaged))
    rows, bad = rows_of(source, 10**9)
    assert rows == [(0, "one"), (starts[2], "two")]
    assert bad[0][0] == starts[1]
    with pytest.raises(
        errors.CorruptFileError, match=rf"a\.wet\.gz', record at byte {starts[1]:,}: .*incorrect data check"
    ):
        cdf.read_warc(tmp_path).compute()


def test_a_truncated_file_is_an_error_with_its_byte(tmp_path):
    content, starts = members(RECORDS)
    for cut in (len(content) - 3, starts[159] + 5, starts[90] + 30):
        number = max(place for place, start in enumerate(starts) if start < cut)
        rows, bad = read_in_ranges(tmp_path / "a.wet.gz", content[:cut])
        assert [address for address, _ in rows] == starts[:number]
        assert [offset for offset, _ in bad] == [starts[number]]
    said = rf"a\.wet\.gz', record at byte {starts[90]:,}: the compressed data is damaged: the file ends in the middle"
    with pytest.raises(errors.CorruptFileError, match=said):
        cdf.read_warc(tmp_path).compute()


def test_a_plain_file_that_is_cut_or_has_something_between(tmp_path):
    one, two = wet("one"), wet("two")
    for content, expected, offset, reason in (
        (one + two[:-8], ["one"], len(one), "the record is cut"),
        (one + two[:40], ["one"], len(one), "the record is cut"),
        (one + b"something else\r\n\r\n" + two, ["one", "two"], len(one), "no record begins here"),
        (one.replace(b"Length: 3", b"Length: 2") + two, ["two"], 0, "does not end after the 2 bytes"),
        (one.replace(b"Length: 3", b"Length: 100") + two, ["two"], 0, "does not end after the 100 bytes"),
        (one.replace(b"Length: 3", b"Length: 99999") + two, ["two"], 0, "the record is cut"),
        (one.replace(b"Length: 3", b"Length: -3") + two, ["two"], 0, "its Content-Length is '-3'"),
        (one.replace(b"Content-Length", b"Content-Width") + two, ["two"], 0, "its Content-Length is ''"),
        (b"WARC/1.0\r\nx: " + b"y" * 100_000 + b"\r\n" + two, ["two"], 0, "more than 65,536 bytes"),
    ):
        source = source_for(tmp_path / "a.wet", content)
        rows, bad = rows_of(source, 10**9)
        assert [text for _, text in rows] == expected
        assert bad[0][0] == offset
        assert reason in bad[0][1]
        with pytest.raises(
            errors.BadRowError, match=rf"a\.wet', record at byte {offset:,}: .*on_bad_rows='quarantine'"
        ):
            cdf.read_warc(tmp_path).compute()


@pytest.mark.parametrize("kind", ["metadata", "conversion"])
def test_a_record_that_is_cut_in_a_whole_member_ends_with_it(tmp_path, kind):
    cut = record(kind, b"x" * 100, Content_Type="text/plain")[:-30]
    content, starts = members([wet("one"), cut, wet("two"), wet("three")])
    rows, bad = rows_of(source_for(tmp_path / "a.wet.gz", content), 10**9)
    assert rows == [(starts[0], "one"), (starts[2], "two"), (starts[3], "three")]
    assert bad == [(starts[1], "the record is cut: it is shorter than its Content-Length says")]


def test_records_that_would_share_an_offset_are_bad(tmp_path):
    empty = b"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: 0\r\n\r\n\r\n\r\n"
    source = source_for(tmp_path / "a.wet.gz", gzip.compress(empty * 2_000, mtime=0) + gzip.compress(wet("other")))
    rows, bad = rows_of(source, 10**9)
    assert [text for _, text in rows] == [""] * 2_000
    assert "more records than bytes" in bad[0][1]


def test_a_response_that_is_damaged_is_bad(tmp_path):
    page = gzip.compress(b"a page")
    for message, reason in (
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + page[:-8] + bytes(8), "the gzip body is damaged: "),
        (b"<p>no header</p>", "the response has no HTTP header"),
        (b"HTTP/1.1 200 OK\r\nServer: x\r\n<p>page</p>", "the HTTP header of the response does not end"),
    ):
        source = source_for(tmp_path / "a.warc", record("response", message) + html(b"two"))
        rows, bad = rows_of(source, 10**9)
        assert [text for _, text in rows] == ["two"]
        assert bad[0][0] == 0
        assert bad[0][1].startswith(reason)


@given(st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_rows_or_bad_records(tmp_path, data):
    content = bytearray(b"".join([wet("one"), record("metadata", b"{}"), html(b"<p>two</p>"), wet("three")]))
    for _ in range(data.draw(st.integers(1, 4))):
        at, size = data.draw(st.integers(0, len(content))), data.draw(st.integers(0, 60))
        content[at : at + size] = data.draw(
            st.binary(max_size=60) | st.sampled_from([b"\r\n", b"WARC/1.0\r\n", b"\r\n\r\n"])
        )
    for suffix, packed in ((".warc", bytes(content)), (".warc.gz", pieces_of(bytes(content), 300))):
        rows, bad = rows_of(source_for(tmp_path / f"a{suffix}", packed), 10**9)
        offsets = [address for address, _ in rows] + [offset for offset, _ in bad]
        assert len(offsets) == len(set(offsets))
        assert [address for address, _ in rows] == sorted(address for address, _ in rows)


def test_files_of_an_object_store_are_cut_too(tmp_path):
    content, starts = members(RECORDS)
    fsspec.filesystem("memory").pipe("/crawl/a.wet.gz", content)
    source = source_of(cdf.read_warc("memory://crawl/*.wet.gz", on_bad_rows="quarantine"))
    for piece_bytes in CUTS:
        assert rows_of(source, piece_bytes) == (list(zip(starts, TEXTS, strict=True)), [])


def test_random_damage_never_hides_a_record_from_every_range_or_shows_it_twice(tmp_path):
    content, starts = members(RECORDS)
    for seed in range(5):
        chance = random.Random(seed)
        damaged = bytearray(content)
        hurt = set()
        for _ in range(chance.randrange(1, 4)):
            at, size = chance.randrange(len(content) - 50), chance.randrange(1, 50)
            damaged[at : at + size] = chance.randbytes(size)
            hurt |= {max(n for n, start in enumerate(starts) if start <= place) for place in (at, at + size - 1)}
        rows, bad = read_in_ranges(tmp_path / "a.wet.gz", bytes(damaged))
        read = [address for address, _ in rows]
        assert set(starts) - {starts[number] for number in hurt} <= set(read)
        assert len(read) == len(set(read))
        assert {offset for offset, _ in bad} <= {starts[number] for number in hurt}
        assert bad
