# SPDX-License-Identifier: Apache-2.0
"""HTTP responses as crawls store them: headers of all kinds, and bodies that are, or are not, in the coding that is named."""

import gzip
import random
import time
import zlib

import brotli
import pytest
import zstandard

from curator_df.io.warc.http_messages import NOT_DECODED, TRUNCATED, BodyError, LongPage, read_body, read_message

PAGE = "<html><body><p>Grüße, the page that was stored.</p></body></html>".encode()
LONG = b"".join(b"<p>%d</p>" % random.Random(number).randrange(10**9) for number in range(20_000))
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"


def chunked(data, size=20, extension=b"", trailer=b"", line_end=b"\r\n"):
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    return (
        b"".join(b"%x%s%s%s%s" % (len(chunk), extension, line_end, chunk, line_end) for chunk in chunks)
        + b"0" + line_end + trailer + line_end
    )  # fmt: skip


def bare_deflate(data):
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def body_of(body, *headers, most_bytes=None):
    """Return the body without its codings, and the note."""
    data = b"before" + OK + b"".join(header.encode() + b"\r\n" for header in headers) + b"\r\n" + body
    message = read_message(data, len(b"before"))
    found = read_body(message, data, most_bytes)
    return b"".join(found.pieces), found.note


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n",
        b"HTTP/2 200\r\nContent-Type: text/html\r\n\r\n",
        b"HTTP/1.1 200 \nContent-Type: text/html\n\n",
        b"HTTP/1.1 200 OK\nContent-Type: text/html\r\n\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\n\r\n",
        b"HTTP/1.1 200 OK\rContent-Type: text/html\r\r",
        b"http/1.0 200 ok\r\ncontent-TYPE:text/html\r\n\r\n",
        b"ICY 200 OK\r\nContent-Type: text/html\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type:\r\n text/html\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Type: text/plain\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Name: caf\xe9 \x00\r\nno header\r\nContent-Type: text/html\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nSet-Cookie: " + b"a" * 200_000 + b"\r\nContent-Type: text/html\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n",
        b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n",
        b"HTTP/1.0 200 Connection Established\nVia: x\n\nHTTP/1.1 200 OK\nContent-Type: text/html\n\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 3 + b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n",
    ],
)
def test_headers_are_read_however_they_are_written(head):
    message = read_message(head + PAGE, 0)
    assert (message.status, message.fields["content-type"]) == (200, "text/html")
    assert read_body(message, head + PAGE, None).pieces == [PAGE]


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("HTTP/1.1 404 Not Found", 404),
        ("HTTP/1.1 999", 999),
        ("HTTP/1.1 OK", None),
        ("HTTP/1.1 99999 X", None),
        ("HTTP/1.1", None),
        ("HTTP/1.1 101 Switching Protocols", 101),
    ],
)
def test_the_status_is_that_of_the_first_line(line, status):
    assert read_message(f"{line}\r\n\r\nbody".encode(), 0).status == status


@pytest.mark.parametrize(
    "end", [b"\r\n\r\n", b"\n\n", b"\r\nVia: x\r\n\r\n", b"\r\nContent-Length: 0\r\n\r\n", b"\r\n\r\n\r\n"]
)
@pytest.mark.parametrize(
    "line",
    [
        b"100 Continue",
        b"103 Early Hints",
        b"200 Connection established",
        b"200 Tunnel established",
        b"200 OK",
        b"200 Blind-Connection Established",
        b"407 Proxy Authentication Required",
    ],
)
def test_messages_before_the_response_are_skipped(line, end):
    data = b"HTTP/1.1 " + line + end + b"HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\n\r\n" + PAGE
    message = read_message(data, 0)
    assert (message.status, message.fields["content-type"]) == (404, "text/html")
    assert read_body(message, data, None).pieces == [PAGE]


@pytest.mark.parametrize("field", [b"Content-Type: text/html", b"Transfer-Encoding: chunked", b"Content-Length: 30"])
@pytest.mark.parametrize("line", [b"HTTP/1.1 100 Continue", b"HTTP/1.0 200 Connection established"])
@pytest.mark.parametrize("following", [b"HTTP/1.1 404 Not Found", b"HTTP/1.1 OK", b"ICY OK"])
def test_messages_that_never_have_a_body_are_skipped_whatever_their_fields(line, field, following):
    data = line + b"\r\n" + field + b"\r\n\r\n" + following + b"\r\nno field\r\nVia: x\r\n\r\n" + PAGE
    message = read_message(data, 0)
    assert message.fields == {"via": "x"}
    assert read_body(message, data, None).pieces == [PAGE]


@pytest.mark.parametrize("line", [b"200 OK", b"200 OK\r\nVia: x", b"407 Proxy Authentication Required"])
@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_a_response_without_fields_follows_the_answer_of_a_proxy(line, end):
    message_end = b"HTTP/1.0 404 Not Found" + end * 2 + PAGE
    data = b"HTTP/1.1 " + line + b"\r\n\r\n" + message_end
    message = read_message(data, 0)
    assert (message.status, message.fields, read_body(message, data, None).pieces) == (404, {}, [PAGE])


@pytest.mark.parametrize(
    "text",
    [
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 404 OK\r\n\r\nis not a standard phrase",
        b"HTTP/1.1 200 means that all went well.\n\nMore",
        b"HTTP/1.1 200 OK\nServer: x\nthis shows a header. Now text",
        b"HTTP/1.1 200 OK\nServer: x\nthis shows a header.\n\nNow text",
        b"HTTP/1.1 200 OK\r\nServer: x\r\nthis shows a header.\r\n\r\nNow text",
        b"HTTP/1.1 200 OK\nServer: x",
    ],
)
def test_a_text_that_begins_like_a_header_is_kept_whole(text):
    data = b"HTTP/1.1 200 OK\r\n\r\n" + text
    message = read_message(data, 0)
    assert (message.fields, read_body(message, data, None).pieces) == ({}, [text])


@pytest.mark.parametrize(
    "header", [b"200 OK\r\nContent-Type: text/plain", b"200 OK\r\nContent-Length: 30", b"404 Gone"]
)
def test_a_page_that_shows_a_message_is_a_page(header):
    shown = b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\n"
    data = b"HTTP/1.1 " + header + b"\r\n\r\n" + shown
    assert read_body(read_message(data, 0), data, None).pieces == [shown]


def test_a_response_without_a_header_is_an_error():
    for data in (PAGE, b"", b"\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", b"HTTPS"):
        with pytest.raises(BodyError, match="has no HTTP header"):
            read_message(data, 0)
    with pytest.raises(BodyError, match="does not end with an empty line"):
        read_message(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n<html>the page</html>", 0)


def test_a_header_that_is_cut_has_no_body():
    for data in (b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK\r\nServer: x", b"HTTP/1.1 200 OK\r\nServer: x\r\n"):
        message = read_message(data, 0)
        assert read_body(message, data, None).note == TRUNCATED
        assert b"".join(read_body(message, data, None).pieces) == b""


CODED = {
    "gzip": gzip.compress(PAGE),
    "x-gzip": gzip.compress(PAGE),
    "GZIP": gzip.compress(PAGE[:30]) + gzip.compress(PAGE[30:]),
    "deflate": zlib.compress(PAGE),
    "Deflate": bare_deflate(PAGE),
    "br": brotli.compress(PAGE),
    "zstd": zstandard.compress(PAGE),
    "ZSTD": zstandard.compress(PAGE[:30]) + zstandard.compress(PAGE[30:]),
    "gzip, gzip": gzip.compress(gzip.compress(PAGE)),
    "gzip, br": brotli.compress(gzip.compress(PAGE)),
    "br,deflate": zlib.compress(brotli.compress(PAGE)),
    "identity": PAGE,
    "none": PAGE,
    "": PAGE,
}


@pytest.mark.parametrize("coding", CODED)
def test_codings_are_removed_from_the_last_to_the_first(coding):
    assert body_of(CODED[coding], f"Content-Encoding: {coding}") == (PAGE, None)
    transferred = chunked(CODED[coding])
    assert body_of(transferred, f"Content-Encoding: {coding}", "Transfer-Encoding: Chunked") == (PAGE, None)
    assert body_of(transferred, f"Transfer-Encoding: {coding}, chunked") == (PAGE, None)


def test_two_fields_are_one_list():
    twice = gzip.compress(gzip.compress(PAGE))
    assert body_of(twice, "Content-Encoding: gzip", "Content-Encoding: gzip") == (PAGE, None)
    assert body_of(chunked(chunked(PAGE)), "Transfer-Encoding: chunked", "Transfer-Encoding: chunked") == (PAGE, None)


@pytest.mark.parametrize(
    "body", [PAGE, b"x", "Text, 漢字".encode(), b"body { color: red }" * 100, b"\xff\xd8\xff\xe0\x00\x10JFIF"]
)
@pytest.mark.parametrize(
    "coding", ["gzip", "br", "deflate", "zstd", "klingon", "utf-8", "aws-chunked", "gzip, br", "compress"]
)
def test_a_body_that_is_not_in_its_coding_is_taken_unchanged(coding, body):
    assert body_of(body, f"Content-Encoding: {coding}", "Content-Length: 1000000") == (body, NOT_DECODED)
    assert body_of(body, f"Content-Encoding: {coding}", "Transfer-Encoding: chunked") == (body, NOT_DECODED)
    assert body_of(chunked(body), f"Content-Encoding: {coding}", "Transfer-Encoding: chunked") == (body, NOT_DECODED)


@pytest.mark.parametrize("packed", [gzip.compress(PAGE), zstandard.compress(PAGE)], ids=["gzip", "zstd"])
@pytest.mark.parametrize("coding", ["gzip", "br", "deflate", "zstd", '"gzip"'])
def test_a_body_in_another_compression_than_its_header_names_is_decompressed(coding, packed):
    assert body_of(packed, f"Content-Encoding: {coding}") == (PAGE, None)
    assert body_of(chunked(packed), f"Content-Encoding: {coding}", "Transfer-Encoding: chunked") == (PAGE, None)
    assert body_of(packed, f"Content-Encoding: {coding}", "Transfer-Encoding: chunked") == (PAGE, NOT_DECODED)
    assert body_of(packed, "Content-Encoding: identity") == (packed, None)


def test_one_coding_of_two_may_be_removed_by_the_crawler():
    packed = gzip.compress(PAGE)
    assert body_of(packed, "Content-Encoding: gzip", "Transfer-Encoding: chunked") == (PAGE, NOT_DECODED)
    assert body_of(packed, "Content-Encoding: gzip, gzip") == (PAGE, NOT_DECODED)
    assert body_of(packed, "Content-Encoding: klingon, gzip") == (PAGE, NOT_DECODED)
    assert body_of(chunked(PAGE), "Transfer-Encoding: chunked, chunked") == (PAGE, NOT_DECODED)


@pytest.mark.parametrize(
    "body",
    [
        chunked(PAGE, extension=b";name=x"),
        chunked(PAGE, extension=b' ; name="x y"'),
        chunked(PAGE, extension=b"  "),
        chunked(PAGE, trailer=b"X-Checksum: 1\r\n"),
        chunked(PAGE, line_end=b"\n"),
        chunked(PAGE, size=10**6),
        chunked(PAGE, size=11).replace(b"b\r\n", b"B\r\n"),
        chunked(PAGE) + b"more",
        chunked(PAGE).replace(b"14\r\n", b"00014\r\n"),
    ],
)
def test_chunks_are_joined(body):
    assert body_of(body, "Transfer-Encoding: chunked") == (PAGE, None)


def test_text_that_begins_like_a_chunk_is_text():
    for body in (b"12\nmonkeys and a zoo full of animals", b"cafe\r\n" + b"a page " * 20_000):
        assert body_of(body, "Transfer-Encoding: chunked") == (body, NOT_DECODED)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_a_body_that_ends_early_gives_what_could_be_decoded(coding):
    packed = {"gzip": gzip.compress, "deflate": zlib.compress, "br": brotli.compress, "zstd": zstandard.compress}
    whole = packed[coding](LONG)
    for kept in (len(whole) * 2 // 3, len(whole) - 1):
        text, note = body_of(whole[:kept], f"Content-Encoding: {coding}")
        assert note == TRUNCATED
        # zstd gives blocks of 128 kB only when they are whole.
        assert len(text) >= len(LONG) // 3
        assert LONG.startswith(text)
    assert body_of(b"", f"Content-Encoding: {coding}") == (b"", None)


@pytest.mark.parametrize("cut", [1, 2, 3, 10])
def test_a_gzip_body_that_is_cut_in_its_header_is_truncated(cut):
    body = gzip.compress(PAGE)[:cut]
    assert body_of(body, "Content-Encoding: gzip") == (b"", TRUNCATED)
    assert body_of(body, "Content-Encoding: br, x-gzip") == (b"", TRUNCATED)


@pytest.mark.parametrize(
    "body", [b"0\r\nnames were found", b"0\nnames\n", b"0\r\n\r\nof 10", b"00\r\nX: 1\r\n\r\nof 10"]
)
def test_text_that_begins_like_the_last_chunk_is_text(body):
    assert body_of(body, "Transfer-Encoding: chunked") == (body, NOT_DECODED)


@pytest.mark.parametrize("body", [b"0\r\n\r\n", b"0\n\n", b"0\r\n", b"0\r\nX-Checksum: 1\r\n\r\n", b"0\r\nX: 1"])
def test_a_body_without_chunks_is_empty(body):
    assert body_of(body, "Transfer-Encoding: chunked") == (b"", None)


def test_chunks_that_end_early_are_counted():
    whole = chunked(PAGE)
    assert body_of(whole[:-5], "Transfer-Encoding: chunked") == (PAGE, TRUNCATED)
    assert body_of(whole[:-6], "Transfer-Encoding: chunked") == (PAGE, TRUNCATED)
    assert body_of(whole[:35], "Transfer-Encoding: chunked") == (PAGE[:25], TRUNCATED)
    assert body_of(b"5", "Transfer-Encoding: chunked") == (b"5", NOT_DECODED)


@pytest.mark.parametrize(
    "packed", [gzip.compress(PAGE), brotli.compress(PAGE), zstandard.compress(PAGE)], ids=["gzip", "br", "zstd"]
)
def test_other_data_after_the_end_is_ignored(packed):
    coding = {0x1F: "gzip", 0x28: "zstd"}.get(packed[0], "br")
    for after in (b"\n<!-- cached -->", b"\0" * 100, b"\r\n", b"x" * 200_000):
        assert body_of(packed + after, f"Content-Encoding: {coding}") == (PAGE, None)


def test_a_damaged_body_is_an_error():
    noise = random.Random(1).randbytes(2_000)
    damaged = {
        "gzip": gzip.compress(LONG)[:20_000] + noise + gzip.compress(LONG)[22_000:],
        "br": brotli.compress(LONG)[:70_000] + b"\xff" * 2_000 + brotli.compress(LONG)[72_000:],
        "zstd": zstandard.compress(LONG)[:70_000] + noise + zstandard.compress(LONG)[72_000:],
        "deflate": zlib.compress(LONG)[:20_000] + noise + zlib.compress(LONG)[22_000:],
    }
    for coding, body in damaged.items():
        with pytest.raises(BodyError, match=f"the {coding} body is damaged: "):
            body_of(body, f"Content-Encoding: {coding}")
    with pytest.raises(BodyError, match="incorrect data check"):
        body_of(gzip.compress(PAGE)[:-8] + bytes(8), "Content-Encoding: gzip")
    with pytest.raises(BodyError, match=r"the chunked body is damaged: no chunk begins with b'<p>"):
        body_of(b"5\r\n12345\r\n<p>not a chunk\r\n", "Transfer-Encoding: chunked")


def test_a_content_length_is_compared_with_the_body():
    assert body_of(PAGE, f"Content-Length: {len(PAGE)}") == (PAGE, None)
    assert body_of(PAGE, "Content-Length: 10") == (PAGE, None)
    assert body_of(PAGE, f"Content-Length: {len(PAGE) + 1}") == (PAGE, TRUNCATED)
    assert body_of(b"", "Content-Length: 5") == (b"", TRUNCATED)
    for length in ("", "none", "-5", "9" * 5000, "٣", "1e3"):
        assert body_of(PAGE, f"Content-Length: {length}") == (PAGE, None)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_a_body_that_would_be_too_long_is_not_held(coding):
    pack = {"gzip": gzip.compress, "deflate": zlib.compress, "br": brotli.compress, "zstd": zstandard.compress}[coding]
    bomb = pack(bytes(100_000_000))
    start = time.process_time()
    with pytest.raises(LongPage) as caught:
        body_of(bomb, f"Content-Encoding: {coding}", most_bytes=1_000_000)
    assert 1_000_000 < caught.value.text_bytes < 20_000_000
    assert time.process_time() - start < 5


def test_a_window_larger_than_http_allows_is_an_error():
    parameters = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True, write_content_size=False)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    body = packer.compress(LONG) + packer.flush()
    with pytest.raises(BodyError, match=r"the zstd body is damaged: .*too much memory"):
        body_of(body, "Content-Encoding: zstd")


def test_random_bodies_are_text_or_an_error():
    chance = random.Random(5)
    packers = {
        "gzip": gzip.compress,
        "deflate": zlib.compress,
        "br": brotli.compress,
        "zstd": zstandard.compress,
        "chunked": chunked,
    }
    outcomes = set()
    for _ in range(3_000):
        coding = chance.choice(list(packers))
        body = bytearray(packers[coding](PAGE * chance.randrange(1, 4)))
        for _ in range(chance.randrange(3)):
            at = chance.randrange(len(body))
            body[at : at + chance.randrange(4)] = chance.randbytes(chance.randrange(4))
        named = chance.choice([coding, "gzip", "br", "deflate", f"{coding}, zstd"])
        try:
            outcomes.add(body_of(bytes(body), f"Content-Encoding: {named}")[1])
        except BodyError:
            outcomes.add(BodyError)
    assert outcomes == {None, TRUNCATED, NOT_DECODED, BodyError}
