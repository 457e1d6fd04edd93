# SPDX-License-Identifier: Apache-2.0
"""A row for each page of a crawl's files: what is read, and what is passed over and counted."""

import bz2
import gzip
import json
import lzma
import zlib

import numpy as np
import pandas as pd
import pytest
import zstandard

import curator_df as cdf
from curator_df import errors
from curator_df.core.ranges.source import OFFSET_BITS, among
from curator_df.files.storage import QUARANTINE_FOLDER
from tests.core.runner.fake_client import inline_cluster
from tests.io.warc_files import html, members, record, response, rows_of, source_of, wet

PACKERS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda content: zstandard.ZstdCompressor().compress(content),
}


def pages_of(tmp_path, *records, **arguments):
    (tmp_path / "a.warc").write_bytes(b"".join(records))
    return cdf.read_warc(tmp_path, **arguments).compute()


def texts_of(tmp_path, *records, **arguments):
    return pages_of(tmp_path, *records, **arguments)["text"].tolist()


def test_a_row_is_a_page_with_what_its_record_says(tmp_path):
    first = record("warcinfo", b"software: x\r\n")
    page = response(
        b"<p>\xc3\xa9t\xc3\xa9</p>",
        "Content-Type: text/HTML; charset=utf-8",
        "Content-Language: fr",
        url="http://a.b/\u00e9",
        status="404 Not Found",
        WARC_Date="2026-01-31T12:00:00Z",
    )
    rows = pages_of(tmp_path, first, page, wet("Two\r\nlines\r\n", 1, "eng,deu"))
    assert rows.astype(object).where(rows.notna(), None).to_dict("records") == [
        {
            "url": "http://a.b/\u00e9",
            "date": "2026-01-31T12:00:00Z",
            "status": 404,
            "content_type": "text/html",
            "language": "fr",
            "text": "<p>été</p>",
        },
        {
            "url": "http://a.b/1",
            "date": "2026-01-31T12:00:00Z",
            "status": None,
            "content_type": "text/plain",
            "language": "eng,deu",
            "text": "Two\r\nlines\r\n",
        },
    ]
    assert rows.index.tolist() == [len(first), len(first + page)]
    text = pd.StringDtype("pyarrow")
    assert rows.dtypes.tolist() == [text, text, pd.Int64Dtype(), text, text, text]


def test_the_address_is_where_to_fetch_the_record(tmp_path):
    content, starts = members([wet(f"text {number}", number) for number in range(30)])
    (tmp_path / "a.warc.wet.gz").write_bytes(b"")
    (tmp_path / "b.warc.wet.gz").write_bytes(content)
    rows = cdf.read_warc(tmp_path, columns=["url", "text"]).compute()
    assert rows.index.tolist() == [(1 << OFFSET_BITS) + start for start in starts]
    at = starts[17]
    assert zlib.decompressobj(wbits=31).decompress(content[at:]).endswith(b"text 17\r\n\r\n")
    assert rows["url"].tolist()[17] == "http://a.b/17"


@pytest.mark.parametrize("packing", PACKERS)
def test_compressed_files_are_decompressed(tmp_path, packing):
    content = b"".join(wet("text " * number, number) for number in range(200))
    (tmp_path / f"a.wet{packing}").write_bytes(PACKERS[packing](content))
    assert cdf.read_warc(tmp_path).compute()["text"].tolist() == ["text " * number for number in range(200)]


@pytest.mark.parametrize(
    ("headers", "body", "text"),
    [
        (["Content-Type: text/html; charset=ISO-8859-1"], b"\xe9 \x80", "é €"),
        (['Content-Type: text/html; charset="Shift_JIS"'], "漢字 ①".encode("cp932"), "漢字 ①"),
        (["Content-Type: text/html; charset=gb2312"], "漢字 €".encode("gb18030"), "漢字 €"),
        (
            ["Content-Type: text/html"],
            b"<meta charset='koi8-r'>" + "привет".encode("koi8-r"),
            "<meta charset='koi8-r'>привет",
        ),
        (["Content-Type: text/html; charset=klingon"], "été".encode(), "été"),
        (["Content-Type: text/html; charset=unicode_escape"], b"\\u0041", "\\u0041"),
        (["Content-Type: text/html; charset=koi8-r"], b"\xef\xbb\xbf" + "été".encode(), "été"),
        (["Content-Type: text/html"], b"\xff\xfe" + "漢字".encode("utf-16-le"), "漢字"),
        (["Content-Type: text/html"], b"<meta charset=utf-16>caf\xc3\xa9", "<meta charset=utf-16>café"),
        (["Content-Type: text/html"], b"caf\xe9 \x93x\x94", "café “x”"),
        (["Content-Type: text/html"], "caf\u00e9 漢".encode()[:-1], "café \ufffd"),
        (["Content-Type: text/html; charset=utf-8"], b"caf\xe9!", "caf\ufffd!"),
        ([], b"no type", "no type"),
        ([], b"", ""),
        (["Transfer-Encoding: chunked"], b"4\r\nchun\r\n2\r\nks\r\n0\r\n\r\n", "chunks"),
        (["Content-Encoding: gzip"], gzip.compress(b"packed", mtime=0), "packed"),
        (["Content-Encoding: deflate"], zlib.compress(b"deflated"), "deflated"),
        (["Transfer-Encoding: chunked", "Content-Encoding: gzip"], None, "both"),
    ],
)
def test_bodies_are_decoded_by_the_rules_of_html(tmp_path, headers, body, text):
    if body is None:
        packed = gzip.compress(b"both")
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(packed), packed)
    assert texts_of(tmp_path, response(body, *headers)) == [text]


def test_a_page_of_several_pieces_is_decoded_as_one(tmp_path):
    text = "漢字仮名 " * 500_000
    assert texts_of(tmp_path, html(text.encode("euc_jp"), "euc-jp"), html(text.encode())) == [text, text]


def test_what_is_no_page_is_passed_over_and_counted(tmp_path):
    request = record("request", b"GET / HTTP/1.1\r\n\r\n", WARC_Target_URI="http://a.b/")
    image = response(b"\xff\xd8\xff", "Content-Type: image/jpeg")
    identified = response(b"%PDF", WARC_Identified_Payload_Type="application/pdf")
    question = record("response", b"a.b. 300 IN A 1.2.3.4", Content_Type="text/dns")
    kept = record("resource", b"<p>file</p>", Content_Type="text/html", WARC_Target_URI="<file:///a>")
    left_out = record("resource", b"body {}", Content_Type="text/css")
    metadata = record("metadata", b"{}")
    (tmp_path / "in").mkdir()
    content, _ = members([request, image, identified, question, kept, left_out, metadata, request, html(b"page")])
    (tmp_path / "in/a.warc.gz").write_bytes(content)
    docs = cdf.read_warc(tmp_path / "in")
    rows = docs.compute()
    assert rows["text"].tolist() == ["<p>file</p>", "page"]
    assert rows["url"].tolist() == ["file:///a", "http://a.b/"]
    with inline_cluster(memory="2GB", cpus=2):
        receipt = cdf.write_parquet(docs, tmp_path / "out", rejects=tmp_path / "rejects")
    assert (receipt.rows_read, receipt.rows_written) == (9, 2)
    reasons = receipt.reasons()
    assert set(reasons["step"]) == {"read_warc"}
    counted = {"request": 2, "content_type": 4, "metadata": 1}
    assert dict(zip(reasons["reason"], reasons["rows"], strict=True)) == counted
    rejects = pd.read_parquet(tmp_path / "rejects")
    assert rejects["reject_reason"].value_counts().to_dict() == counted
    every = cdf.read_warc(tmp_path / "in", content_types=None, columns="text").compute()["text"].tolist()
    assert every[1:] == ["%PDF", "<p>file</p>", "body {}", "page"]
    assert cdf.read_warc(tmp_path / "in", content_types="text/CSS").compute()["text"].tolist() == ["body {}"]


def test_html_to_text_goes_on_from_it(tmp_path):
    page = html(b"<nav><a href='/'>Home</a></nav><main><h1>A story</h1><p>It is <b>short</b>.</p></main>")
    (tmp_path / "a.warc").write_bytes(page)
    pytest.importorskip("resiliparse", reason="resiliparse is in the html extra")
    assert cdf.read_warc(tmp_path).pipe(cdf.remove_html).compute()["text"].tolist() == ["A story\n\nIt is short."]


@pytest.mark.parametrize("block_bytes", [1, 2_000, 10**6])
def test_blocks_are_bounded_and_hold_whole_records(tmp_path, block_bytes):
    sizes = (10, 3_000, 20, 0, 20, 20, 7)
    (tmp_path / "a.warc").write_bytes(b"".join(html(b"x" * size) for size in sizes))
    source = source_of(cdf.read_warc(tmp_path))
    (piece,) = source.cut(10**9)
    blocks = list(source.blocks(piece, block_bytes=block_bytes))
    assert [len(text) for block in blocks for text in block["text"]] == list(sizes)
    assert all(len(block) == 1 or block["text"].str.len().sum() <= block_bytes for block in blocks)
    addresses = np.concatenate([block.index for block in blocks])
    (some,) = source.blocks(piece, block_bytes=10**6, wanted=among(addresses[[1, 6]]))
    assert some["text"].str.len().tolist() == [3_000, 7]


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (["Content-Type: text/html"], b"z" * 3_000_000),
        (["Content-Encoding: gzip"], gzip.compress(b"z" * 3_000_000, mtime=0)),
        (None, b"z" * 3_000_000),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_page_that_does_not_fit_is_refused_or_left_out(tmp_path, headers, body, suffix):
    content, starts = members([wet("one"), response(body, *headers) if headers else wet(body.decode()), wet("two")])
    (tmp_path / f"a.warc{suffix}").write_bytes(content if suffix else gzip.decompress(content))
    source = source_of(cdf.read_warc(tmp_path))
    (piece,) = source.cut(10**9)
    arguments = {"block_bytes": 1_000, "largest_row_bytes": 1_000_000}
    with pytest.raises(errors.OversizeRowError, match=r"a\.warc.*record at byte.*but 1,000,000 fit into the memory"):
        list(source.blocks(piece, **arguments))
    long = []
    blocks = list(source.blocks(piece, on_long_row=long.append, **arguments))
    assert [text for block in blocks for text in block["text"]] == ["one", "two"]
    assert [error.row_bytes > 1_000_000 for error in long] == [True]
    assert not suffix or long[0].offset == starts[1]


def test_what_is_no_page_is_passed_over_whatever_its_size(tmp_path):
    image = response(b"\xff" * 3_000_000, "Server: x", "Content-Type: image/jpeg; q=1")
    style = record("resource", b"x" * 3_000_000, Content_Type="text/css")
    (tmp_path / "a.warc.gz").write_bytes(members([html(b"one"), image, style, html(b"two")])[0])
    source = source_of(cdf.read_warc(tmp_path))
    block = pd.concat(source.blocks(source.cut(10**9)[0], block_bytes=10**5, largest_row_bytes=10**5))
    assert block["skipped"].fillna("").tolist() == ["", "content_type", "content_type", ""]
    assert block["content_type"].tolist() == ["text/html", "image/jpeg", "text/css", "text/html"]


def test_a_run_keeps_what_is_bad_and_goes_on(tmp_path):
    (tmp_path / "in").mkdir()
    records = [wet(f"text {number} " * 50, number) for number in range(40)]
    content, starts = members(records)
    damaged = bytearray(content)
    damaged[starts[10] + 30] ^= 0xFF
    (tmp_path / "in/a.warc.wet.gz").write_bytes(damaged)
    (tmp_path / "in/b.warc.wet.gz").write_bytes(content[: starts[39] + 20])
    no_http = record("response", b"not HTTP")
    (tmp_path / "in/c.warc").write_bytes(html(b"one") + no_http + html(b"two"))
    docs = cdf.read_warc(tmp_path / "in", on_bad_rows="quarantine")
    with inline_cluster(memory="2GB", cpus=2):
        receipt = cdf.write_parquet(docs, tmp_path / "out")
    assert (receipt.rows_read, receipt.rows_written, receipt.rows_quarantined) == (83, 80, 3)
    lines = [
        line for file in (tmp_path / "out" / QUARANTINE_FOLDER).iterdir() for line in file.read_text().splitlines()
    ]
    aside = {(row["file"][-11:], row["offset"]) for row in map(json.loads, lines)}
    expected = {
        ("warc.wet.gz", starts[10]),
        ("warc.wet.gz", starts[39]),
        (str(tmp_path / "in/c.warc")[-11:], len(html(b"one"))),
    }
    assert aside == expected


def test_a_warning_says_where_the_first_bad_record_is(tmp_path):
    with pytest.warns(UserWarning, match=r"1 bad row was skipped, the first in .*a\.warc', byte 0: the record has no"):
        assert texts_of(tmp_path, record("response", b"x"), html(b"one"), on_bad_rows="quarantine") == ["one"]


def test_what_is_read_is_part_of_the_fingerprint(tmp_path):
    (tmp_path / "a.warc").write_bytes(html(b"one"))
    choices = [{}, {"columns": "text"}, {"content_types": None}, {"on_bad_rows": "quarantine"}]
    assert len({source_of(cdf.read_warc(tmp_path, **arguments)).fingerprint for arguments in choices}) == 4


def test_directories_are_searched_for_their_suffixes(tmp_path):
    for name in ("a.warc.gz", "b.wet", "c.wat.gz", "d.txt"):
        (tmp_path / name).write_bytes(wet(name) if not name.endswith("gz") else gzip.compress(wet(name)))
    assert cdf.read_warc(tmp_path).compute()["text"].tolist() == ["a.warc.gz", "b.wet"]
    assert rows_of(source_of(cdf.read_warc(tmp_path / "d.txt")), 10**6) == ([(0, "d.txt")], [])


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        ({"on_bad_rows": "skip"}, errors.ParameterError, "is not one of 'raise', 'quarantine'"),
        ({"columns": ["html"]}, errors.ColumnError, r"has 'html', which is not in the files. They have: 'url', 'date'"),
    ],
)
def test_what_cannot_be_asked_is_refused(tmp_path, arguments, kind, said):
    (tmp_path / "a.warc").write_bytes(html(b"one"))
    with pytest.raises(kind, match=said):
        cdf.read_warc(tmp_path, **arguments)
