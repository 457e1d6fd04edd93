# SPDX-License-Identifier: Apache-2.0
"""Where the records of a WARC file begin: members found from any byte, and files that are damaged, cut, or packed oddly."""

import gzip
import io
import random

import fsspec
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import curator_df as cdf
from curator_df import errors
from curator_df.io.streams.gzip_members import find_member
from tests.core.runner.fake_client import inline_cluster
from tests.examples import examples
from tests.io.warc_files import (
    HEADER,
    dictionary_frame,
    html,
    members,
    pieces_of,
    record,
    rows_of,
    source_of,
    stored,
    wet,
    written,
)

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


@pytest.mark.parametrize("damage", [b"", b"\r\x02"])
def test_a_header_that_does_not_end_takes_no_other_record_along(tmp_path, damage):
    first = html(b"one")
    other = record("metadata", b"{}")
    head = other[: other.index(b"Content-Length")] + damage
    rows, bad = rows_of(source_for(tmp_path / "a.warc", first + head + wet("two") + html(b"three")), 10**9)
    assert bad == [(len(first), "its header does not end before that of the next record")]
    assert [text for _, text in rows] == ["one", "two", "three"]


@pytest.mark.parametrize("cut", [30, 150, 280, 5_000, 2_000_000])
def test_the_record_after_one_that_was_cut_in_the_middle_of_a_line_is_read(tmp_path, cut):
    half = wet("x" * 3_000_000)[:cut]
    (tmp_path / "a.wet.zst").write_bytes(zstandard.compress(wet("one") + half + wet("two") + wet("three")))
    rows, bad = rows_of(source_of(cdf.read_warc(tmp_path, on_bad_rows="quarantine")), 10**9)
    assert [text for _, text in rows] == ["one", "two", "three"]
    assert [offset for offset, _ in bad] == [len(wet("one"))]


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
        (one.replace(b"Content-Length", b"Content-Width") + two, ["two"], 0, "it has no Content-Length"),
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


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_record_of_a_damaged_member_is_bad_also_if_other_data_follows_it_there(tmp_path, kind):
    pack = {"gz": gzip.compress, "zst": zstandard.ZstdCompressor(write_checksum=True).compress}[kind]
    first, last = pack(wet("one")), pack(wet("two") + b"what a changed length leaves " * 9)
    rows, bad = rows_of(source_for(tmp_path / f"a.wet.{kind}", first + last[:-2]), 10**9)
    assert [text for _, text in rows] == ["one"]
    assert ["the compressed data is damaged" in reason for _, reason in bad] == [True]
    rows, bad = rows_of(source_for(tmp_path / f"b.wet.{kind}", first + last), 10**9)
    assert [text for _, text in rows] == ["one", "two"]
    assert ["no record begins here" in reason for _, reason in bad] == [True]


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
        (b"<p>no header</p>", "the record has no HTTP header"),
        (b"HTTP/1.1 200 OK\r\nServer: x\r\n<p>page</p>", "the HTTP header of the response does not end"),
    ):
        source = source_for(tmp_path / "a.warc", record("response", message) + html(b"two"))
        rows, bad = rows_of(source, 10**9)
        assert [text for _, text in rows] == ["two"]
        assert bad[0][0] == 0
        assert bad[0][1].startswith(reason)


BLOCK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>the page</p>"
LENGTH = "Content-Length: LENGTH"
SPELLINGS = {
    "as usual": HEADER,
    "a name in small letters": HEADER.replace("Content-Length", "content-length"),
    "a name in mixed letters": HEADER.replace("Content-Length", "Content-length"),
    "a name in capitals": HEADER.replace("WARC-Type", "WARC-TYPE").replace("Content-Type", "CONTENT-TYPE"),
    "no spaces": HEADER.replace(": ", ":"),
    "spaces and tabs": HEADER.replace(LENGTH, "Content-Length \t:\t LENGTH \t"),
    "leading zeros": HEADER.replace(LENGTH, "Content-Length: 000LENGTH"),
    "a folded length": HEADER.replace(LENGTH, "Content-Length:\n LENGTH"),
    "a folded type": HEADER.replace("WARC-Type: ", "WARC-Type:\n\t"),
    "a folded field": HEADER.replace("WARC-Date", "X: a\n b\n\tc\nWARC-Date"),
    "an odd version line": HEADER.replace("WARC/1.0", "WARC/1.1 \t"),
    "a draft": HEADER.replace("WARC/1.0", "WARC/0.17"),
    "ClueWeb": HEADER.replace("WARC/1.0", "WARC/0.18"),
    "a type in capitals": HEADER.replace("response\nWARC-D", "RESPONSE\nWARC-D"),
    "no content type": HEADER.replace("Content-Type: application/http; msgtype=response\n", ""),
    "a length twice": HEADER.replace(LENGTH, f"{LENGTH}\nContent-Length: 5"),
    "a line without a colon": HEADER.replace("WARC-Date", "no field\nWARC-Date"),
    "a long field": HEADER.replace("WARC-Date", f"X: {'x' * 60_000}\nWARC-Date"),
    "brackets": HEADER.replace("http://a.b/", "<http://a.b/>"),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("line_end", ["\r\n", "\n"])
def test_each_spelling_of_a_header_gives_the_page(tmp_path, spelling, line_end):
    one = written(BLOCK, SPELLINGS[spelling], line_end)
    (tmp_path / "a.warc").write_bytes(one + html(b"two"))
    rows = cdf.read_warc(tmp_path / "a.warc").compute()
    assert rows["text"].tolist() == ["<p>the page</p>", "two"]
    assert (rows["url"].iloc[0], rows["status"].iloc[0]) == ("http://a.b/", 200)
    assert rows.index.tolist() == [0, len(one)]


@pytest.mark.parametrize("after", [b"", b"\n", b"\r\n", b"\n\n", b"\r\n\r\n\r\n\r\n"])
@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_records_need_no_line_ends_between_them(tmp_path, after, suffix):
    blocks = [BLOCK.replace(b"the page", str(number).encode() * number * 997) for number in range(60)]
    content = b"".join(written(block, after=after) for block in blocks)
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}[suffix]
    rows, bad = rows_of(source_for(tmp_path / f"a.warc{suffix}", pack(content)), 10**9)
    assert [text for _, text in rows] == [block.partition(b"\r\n\r\n")[2].decode() for block in blocks]
    assert not bad


def test_values_are_utf_8_or_latin_1(tmp_path):
    header = HEADER.replace("http://a.b/", "http://a.b/\u00e9")
    plain = written(BLOCK, header.replace("WARC-Date", "X: \u00c3\u00a9\nWARC-Date"))
    (tmp_path / "a.warc").write_bytes(plain + plain.replace(b"/\xe9", "/é漢".encode()))
    assert cdf.read_warc(tmp_path / "a.warc").compute()["url"].tolist() == ["http://a.b/é", "http://a.b/é漢"]


def test_addresses_of_the_sixth_version_stay_whole(tmp_path):
    url = "http://[2001:db8::1]:8080/a:b?c=<d>"
    (tmp_path / "a.warc").write_bytes(written(BLOCK, HEADER.replace("http://a.b/", url)))
    assert cdf.read_warc(tmp_path / "a.warc").compute()["url"].tolist() == [url]


@pytest.mark.parametrize(
    ("first_line", "said"),
    [
        ("WARC/0.9 1234 response http://a.b/ 20060101000000 text/html", "its first line is 'WARC/0.9 1234 response"),
        ("WARC/2.0", "its first line is 'WARC/2.0', and must be a version such as 'WARC/1.1'"),
        ("WARC/", "its first line is 'WARC/'"),
    ],
)
def test_other_versions_are_named(tmp_path, first_line, said):
    other = written(BLOCK, HEADER.replace("WARC/1.0", first_line))
    rows, bad = rows_of(source_for(tmp_path / "a.warc", html(b"one") + other + html(b"two")), 10**9)
    assert [text for _, text in rows] == ["one", "two"]
    assert bad[0][0] == len(html(b"one"))
    assert bad[0][1].startswith(said)


ARC = (
    b"filedesc://a.arc 0.0.0.0 20060101000000 text/plain 76\n1 0 Archive\nURL IP-address Archive-date Content-type "
    b"Archive-length\n\nhttp://a.b/ 1.2.3.4 20060101000000 text/html 26\nHTTP/1.0 200 OK\n\n<p>page\n\n"
)


@pytest.mark.parametrize("on_bad_rows", ["raise", "quarantine"])
@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.arc", ARC, "is an ARC file, .* warcio recompress old.arc.gz new.warc.gz"),
        ("a.arc.gz", gzip.compress(ARC[:200]) + gzip.compress(ARC[200:]), "is an ARC file"),
        ("a.warc.zst", zstandard.compress(ARC), "is an ARC file"),
        ("a.warc", gzip.compress(RECORDS[0]), r"is compressed. Rename it so that its name ends in \.gz"),
        ("a.warc", zstandard.compress(RECORDS[0]), r"is compressed. Rename it so that its name ends in \.zst"),
        ("a.warc.gz", RECORDS[0], r"not compressed. Rename it so that its name ends in \.warc"),
    ],
)
def test_a_file_of_another_kind_is_named_for_what_it_is(tmp_path, name, content, said, on_bad_rows):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(errors.CorruptFileError, match=said):
        cdf.read_warc(tmp_path / name, on_bad_rows=on_bad_rows).compute()


def test_the_dictionary_that_a_file_begins_with_is_used(tmp_path):
    dictionary = zstandard.train_dictionary(4_000, RECORDS)
    packer = zstandard.ZstdCompressor(dict_data=dictionary)
    frames = b"".join(map(packer.compress, RECORDS))
    for content in (dictionary.as_bytes(), zstandard.compress(dictionary.as_bytes())):
        rows, bad = rows_of(source_for(tmp_path / "a.wet.zst", dictionary_frame(content) + frames), 10**9)
        assert ([text for _, text in rows], bad) == (TEXTS, [])
    (tmp_path / "a.wet.zst").write_bytes(frames)
    with pytest.raises(errors.CorruptFileError, match=r"need a dictionary that is not at its beginning.*zstd -d -D"):
        cdf.read_warc(tmp_path).compute()


def test_a_record_that_says_that_it_is_not_whole_is_a_page_and_counted(tmp_path):
    (tmp_path / "in").mkdir()
    parts = [
        written(BLOCK, HEADER.replace("WARC-Date", "WARC-Truncated: length\nWARC-Date")),
        written(BLOCK, HEADER.replace("WARC-Date", "WARC-Segment-Number: 1\nWARC-Date")),
        written(b"more", HEADER.replace("response\nWARC-D", "continuation\nWARC-Segment-Number: 2\nWARC-D")),
        written(BLOCK.replace(b"text/html", b"text/html\r\nContent-Length: 900")),
        written(BLOCK.replace(b"text/html", b"text/html\r\nContent-Encoding: gzip")),
        written(BLOCK),
        written(b""),
        written(b"", HEADER.replace("response\nWARC-D", "revisit\nWARC-D")),
        record("conversion", b""),
    ]
    (tmp_path / "in/a.warc").write_bytes(b"".join(parts))
    docs = cdf.read_warc(tmp_path / "in")
    assert docs.compute()["text"].tolist() == ["<p>the page</p>"] * 5 + [""]
    with inline_cluster("2GB", 2):
        receipt = cdf.write_parquet(docs, tmp_path / "out")
    step = next(step for step in receipt.steps if step.name == "read_warc")
    assert step.counters == {"pages_truncated": 3, "pages_not_decoded": 1}
    assert step.dropped == {"continuation": 1, "revisit": 1, "empty": 1}
    assert (receipt.rows_read, receipt.rows_written) == (9, 6)


@given(st.data())
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
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


@pytest.mark.parametrize("more", [1, 3])
@pytest.mark.parametrize("suffix", ["warc", "warc.gz"])
def test_a_length_that_ends_within_a_line_end_is_a_bad_record(tmp_path, more, suffix):
    block = b"HTTP/1.1 200 OK\r\n\r\n<p>one"
    long = written(block, HEADER.replace("LENGTH", str(len(block) + more)))
    for following in (b"", html(b"two")):
        content = members([long, following][: 1 + bool(following)])[0] if suffix == "warc.gz" else long + following
        rows, bad = rows_of(source_for(tmp_path / f"a.{suffix}", content), 10**9)
        assert [text for _, text in rows] == ["two"][: bool(following)]
        assert bad == [(0, f"it does not end after the {len(block) + more:,} bytes of its Content-Length")]


def test_a_text_may_end_with_line_ends_and_lack_separators(tmp_path):
    block = b"HTTP/1.1 200 OK\r\n\r\n<p>one\r\n\r\n"
    rows, bad = rows_of(source_for(tmp_path / "a.warc", written(block, after=b"") + html(b"two")), 10**9)
    assert ([text for _, text in rows], bad) == (["<p>one\r\n\r\n", "two"], [])
