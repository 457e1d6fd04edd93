# SPDX-License-Identifier: Apache-2.0
"""`add_url_parts`: hosts, registered domains and paths of any string."""

from __future__ import annotations

import ipaddress

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import curator_df as cdf
from curator_df import errors
from curator_df.kernels.urls import parts
from curator_df.kernels.urls.parts import (
    MAX_HOST_CHARS,
    MAX_URL_BYTES,
    SPAN_ROWS,
    registered_domain,
    spans_of,
    split_url,
    split_urls,
)
from curator_df.ops.urls.url_parts import add_url_parts_block
from tests.examples import examples

pytest.importorskip("tldextract", reason="needs the extra urls")

FOUND = {
    "http://example.com": ("example.com", "example.com", "/"),
    "HTTPS://WWW.Example.COM/A/b?q#f": ("www.example.com", "example.com", "/A/b"),
    "http://user:p@ss@example.com:8080/x": ("example.com", "example.com", "/x"),
    "http://example.com./x": ("example.com", "example.com", "/x"),
    "http://example.com../": ("example.com", "example.com", "/"),
    "http://example.com:/": ("example.com", "example.com", "/"),
    "http://example.com:port/": ("example.com", "example.com", "/"),
    "//cdn.example.co.uk/a": ("cdn.example.co.uk", "example.co.uk", "/a"),
    "example.com/a/b": ("example.com", "example.com", "/a/b"),
    "example.com:80?x=1": ("example.com", "example.com", "/"),
    " \n https://exam\nple.com \t": ("example.com", "example.com", "/"),
    "http://bücher.de/ü": ("xn--bcher-kva.de", "xn--bcher-kva.de", "/ü"),
    "http://BÜCHER.de": ("xn--bcher-kva.de", "xn--bcher-kva.de", "/"),
    "http://xn--bcher-kva.de/": ("xn--bcher-kva.de", "xn--bcher-kva.de", "/"),
    "http://straße.de/": ("xn--strae-oqa.de", "xn--strae-oqa.de", "/"),
    "http://例え。テスト/": ("xn--r8jz45g.xn--zckzah", "xn--r8jz45g.xn--zckzah", "/"),
    "http://www.食狮.公司.cn/": ("www.xn--85x722f.xn--55qx5d.cn", "xn--85x722f.xn--55qx5d.cn", "/"),
    "http://💩.la/": ("xn--ls8h.la", "xn--ls8h.la", "/"),
    "http://%65xample.com/": ("example.com", "example.com", "/"),
    "http://a.b.city.kawasaki.jp": ("a.b.city.kawasaki.jp", "city.kawasaki.jp", "/"),
    "http://x.y.z.ck/": ("x.y.z.ck", "y.z.ck", "/"),
    "http://www.ck/": ("www.ck", "www.ck", "/"),
    "http://a.casino-bonus.example/": ("a.casino-bonus.example", "casino-bonus.example", "/"),
    "http://me.github.io/": ("me.github.io", "github.io", "/"),
    "http://co.uk/": ("co.uk", None, "/"),
    "http://localhost:8080/x": ("localhost", None, "/x"),
    "http://under_score.example.org": ("under_score.example.org", "example.org", "/"),
    "http://127.0.0.1:80/x": ("127.0.0.1", None, "/x"),
    "10.0.0.1/x": ("10.0.0.1", None, "/x"),
    "http://0x7f.1/": ("127.0.0.1", None, "/"),
    "http://2130706433/": ("127.0.0.1", None, "/"),
    "http://[2001:DB8:0::1]:80/x": ("[2001:db8::1]", None, "/x"),
    "http://[::ffff:1.2.3.4]": ("[::ffff:102:304]", None, "/"),
    "[::1]:8080/x": ("[::1]", None, "/x"),
    "http://good.com\\@bad.com/": ("good.com", "good.com", "\\@bad.com/"),
    "https:\\\\example.com\\a": ("example.com", "example.com", "\\a"),
    "http:///example.com/": ("example.com", "example.com", "/"),
    "ftp://example.com/a;b": ("example.com", "example.com", "/a;b"),
    "http://example.com?a/b": ("example.com", "example.com", "/"),
    "http://example.com#a/b": ("example.com", "example.com", "/"),
}
NOTHING = (
    None,
    "",
    " ",
    "\0",
    "not a URL",
    "Hello. This is a text, and no URL.",
    "mailto:me@example.com",
    "me@example.com",
    "javascript:alert(1)",
    "data:text/html,example.com",
    "urn:isbn:0451450523",
    "file:///etc/passwd",
    "/a/relative/path.html",
    "?q=example.com",
    "#example.com",
    "http://",
    "http://?",
    "http://exa mple.com/",
    "http://exa<b>mple.com/",
    "http://1.2.3.4.5/",
    "http://256.256.256.256/",
    "http://[::1",
    "http://[::g]/",
    "http://%zz%00.com/",
    "http://" + "a" * (MAX_HOST_CHARS + 1) + "/",
    "http://" + "é" * 100_000 + ".com/",
    "http://example.com/" + "a" * MAX_URL_BYTES,
    "3.14",
    "e.g.",
    "...",
)


def parts_of(urls, **options):
    block = pd.DataFrame({"url": pd.array(urls, "string[pyarrow]")})
    found = add_url_parts_block(block, url="url", prefix="", private_suffixes=False, **options).block
    return [tuple(None if pd.isna(value) else value for value in row) for row in found.iloc[:, 1:].to_numpy()]


def test_urls_are_split_as_a_browser_splits_them():
    assert dict(zip(FOUND, parts_of(list(FOUND)), strict=True)) == FOUND


def test_what_is_no_url_has_no_parts():
    assert dict(zip(NOTHING, parts_of(NOTHING), strict=True)) == dict.fromkeys(NOTHING, (None, None, None))


def test_private_suffixes_count_only_if_asked_for():
    docs = dd.from_pandas(pd.DataFrame({"link": ["https://a.me.github.io/", "http://b.co.uk"]}), npartitions=1)
    found = cdf.add_url_parts(docs, url="link", prefix="x_", private_suffixes=True).compute()
    assert found.columns.tolist() == ["link", "x_host", "x_domain", "x_path"]
    assert found["x_domain"].tolist() == ["me.github.io", "b.co.uk"]
    assert [str(dtype) for dtype in found.dtypes.iloc[1:]] == ["string"] * 3


HOSTS = st.sampled_from(
    ["example.com", "[::1]", "1.2.3.4", "bücher.de", "xn--", "a..b", "0x", "%41.b", "💩", "xn--é.com"]
)
PIECES = st.one_of(
    st.sampled_from(["http", ":", "/", "//", "@", "?", "#", "[", "]", ".", "%", "\\", "。"]), HOSTS, st.text()
)
URLS = (
    st.lists(PIECES, max_size=8)
    .map("".join)
    .filter(lambda text: text.isascii() or text.encode("utf-8", "replace") != b"")
)


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(st.one_of(st.none(), URLS), max_size=6))
def test_no_string_raises_and_one_by_one_is_the_same(urls):
    urls = [None if url is None else url.encode("utf-8", "replace").decode() for url in urls]
    found = parts_of(urls)
    for url, (host, domain, path) in zip(urls, found, strict=True):
        assert (host is None) == (path is None)
        assert domain is None or f".{host}".endswith(f".{domain}")
        assert host is None or (host == host.lower() and host.isascii() and 0 < len(host) <= MAX_HOST_CHARS)
        alone = None if url is None or len(url.encode()) > MAX_URL_BYTES else split_url(url)
        assert (alone is None) == (host is None)
        if alone is not None:
            assert alone[0] == host and alone[1].startswith(path)
        if host is not None and host.startswith("["):
            ipaddress.IPv6Address(host[1:-1])


def test_hosts_are_worked_on_once(monkeypatch):
    asked, known = [], parts.suffix_list()

    def counted(host, **options):
        asked.append(host)
        return known(host, **options)

    monkeypatch.setattr(parts, "suffix_list", lambda: counted)
    registered_domain.cache_clear()
    rows = [f"http://www.once.example.org/{number}" for number in range(3 * SPAN_ROWS)]
    assert {domain for _, domain, _ in parts_of(rows)} == {"example.org"}
    assert asked == ["www.once.example.org"]


def test_spans_hold_all_rows_of_any_length():
    urls = pa.chunked_array(
        [["http://a.example/" + "x" * (number % 50_000) for number in range(0, 900_000, 9_001)], [], ["b"]]
    )
    spans = list(spans_of(urls))
    assert [url for span in spans for url in span.to_pylist()] == urls.combine_chunks().to_pylist()
    assert 2 < len(spans) < len(urls)
    sliced = pa.chunked_array([urls.chunk(0).slice(3, 5)])
    assert [url for span in spans_of(sliced) for url in span.to_pylist()] == sliced.to_pylist()


def test_a_slice_of_rows_keeps_its_codes():
    urls = pa.array(["http://a.example", None, "http://b.example", "http://a.example"], pa.large_string()).slice(1)
    assert split_urls(urls).codes.tolist() == [-1, 0, 1]


def test_what_is_wrong_is_said():
    docs = dd.from_pandas(pd.DataFrame({"url": ["a"], "url_path": ["b"]}), npartitions=1)
    with pytest.raises(errors.ColumnError, match="'link'"):
        cdf.add_url_parts(docs, url="link")
    with pytest.raises(errors.ColumnError, match=r"add_url_parts would overwrite 'url_path'; .*prefix="):
        cdf.add_url_parts(docs)
    with pytest.raises(errors.ParameterError, match="private_suffixes='yes' must be True or False"):
        cdf.add_url_parts(docs, prefix="x_", private_suffixes="yes")
