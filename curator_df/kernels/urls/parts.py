# SPDX-License-Identifier: Apache-2.0
"""Split URLs into host, registered domain and path; no string makes it raise.

The authority (what stands between ``//`` and the path) is found in all rows together by regular expressions of RE2. Python code
then runs once for each distinct authority: it makes the host, as the WHATWG URL standard does, and looks up the registered
domain in the public suffix list that the package tldextract contains.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from curator_df.kernels.text.buffers import string_buffers

MAX_HOST_CHARS = 253
"""Maximum length of a host name (RFC 1035, without the trailing dot)."""
CACHED_HOSTS = 8192
"""Number of hosts, and of their registered domains, that a process remembers."""
SPAN_ROWS = 4096
"""Number of rows that are split together."""
SPAN_BYTES = 1_000_000
"""Number of bytes of URLs that are split together."""
MAX_URL_BYTES = 65_536
"""Maximum length of a URL in bytes. A longer text is not a URL."""
DOTS = str.maketrans("。．｡", "...")
"""Characters that IDNA treats as dots."""

_TRIMMED = "".join(map(chr, range(33)))
_REST = r"(?P<query>(?:\?[^#]*)?)"
_SLASHES = (
    r"^(?:(?i:https?):[/\\]{2,}|(?:[A-Za-z][A-Za-z0-9+.\-]*:)?[/\\]{2})"
    rf"(?P<authority>[^/\\?#]*)(?P<path>[^?#]*){_REST}"
)
_BARE_HOST = (
    r"\[[0-9A-Fa-f:.]+\]|[0-9]{1,3}(?:\.[0-9]{1,3}){3}|"
    r"[^/\\?#\s:@\[\]]*[.。．｡](?:[A-Za-z]|[^\x00-\x7F])[^/\\?#\s:@\[\].。．｡]+[.。．｡]?"
)
_BARE = rf"^(?P<authority>(?:{_BARE_HOST})(?::[0-9]*)?)(?P<path>(?:[/\\][^?#]*)?){_REST}(?:#|$)"
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f#%/:<>?@\[\\\]^|\ufffd]")
_NUMERIC = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)\Z")


@dataclass(frozen=True)
class SplitUrls:
    """Parts of some URLs. Rows that are null, or not URLs, have neither host nor path."""

    hosts: tuple[str, ...]
    """Distinct hosts."""
    codes: npt.NDArray[np.int32]
    """Position of the host of each row in ``hosts``, shape (rows,); -1 for a row without a host."""
    paths: pa.Array
    """Path of each row, ``/`` if it is empty; null for a row without a host."""
    queries: pa.Array
    """Query of each row with its question mark, empty if there is none; null for a row without a host."""


def spans_of(urls: pa.ChunkedArray) -> Iterator[pa.Array]:
    """Yield the rows of a column in spans of at most `SPAN_ROWS` and about `SPAN_BYTES`; texts over `MAX_URL_BYTES` are null."""
    for chunk in urls.chunks:
        offsets = string_buffers(chunk)[1]
        start = 0
        while start < len(chunk):
            fitting = int(np.searchsorted(offsets, offsets[start] + SPAN_BYTES, side="right")) - 1
            stop = min(max(fitting, start + 1), start + SPAN_ROWS, len(chunk))
            span = chunk.slice(start, stop - start)
            lengths = np.diff(offsets[start : stop + 1])
            if lengths.max() > MAX_URL_BYTES:
                span = pc.if_else(pa.array(lengths > MAX_URL_BYTES), pa.scalar(None, span.type), span)
            yield span.cast(pa.large_string())
            start = stop


def split_urls(urls: pa.Array) -> SplitUrls:
    """Split URLs.

    Examples
    --------
    >>> found = split_urls(pa.array(["HTTP://me@WWW.Example.com.:80/a?b#c", "not a URL", None], pa.large_string()))
    >>> found.hosts, found.codes.tolist(), found.paths.to_pylist()
    (('www.example.com',), [0, -1, -1], ['/a', None, None])
    """
    cleaned = pc.replace_substring_regex(pc.utf8_trim(urls, characters=_TRIMMED), r"[\t\r\n]", "")
    full, bare = _groups(cleaned, _SLASHES), _groups(cleaned, _BARE)
    authorities, paths, queries = (pc.coalesce(one, other) for one, other in zip(full, bare, strict=True))
    encoded = authorities.dictionary_encode()
    numbers: dict[str, int] = {}
    places = np.full(len(encoded.dictionary) + 1, -1, dtype=np.int32)
    for place, authority in enumerate(encoded.dictionary.to_pylist()):
        if (host := host_of(authority)) is not None:
            places[place] = numbers.setdefault(host, len(numbers))
    codes = places[pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)]
    without = pa.array(codes < 0)
    paths = pc.if_else(pc.equal(paths, ""), "/", paths)
    nothing = pa.scalar(None, pa.large_string())
    return SplitUrls(tuple(numbers), codes, pc.if_else(without, nothing, paths), pc.if_else(without, nothing, queries))


def _groups(urls: pa.Array, pattern: str) -> list[pa.Array]:
    found = pc.extract_regex(urls, pattern)
    return [pc.struct_field(found, name) for name in ("authority", "path", "query")]


@functools.cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.ASCII) for pattern in (_SLASHES, _BARE))


def split_url(url: str) -> tuple[str, str] | None:
    """Return the host of one URL, and its path with the query; None if it has no host.

    Examples
    --------
    >>> split_url("example.com/a?b#c"), split_url("mailto:me@example.com")
    (('example.com', '/a?b'), None)
    """
    cleaned = re.sub(r"[\t\r\n]", "", url.strip(_TRIMMED))
    full, bare = _patterns()
    found = full.match(cleaned) or bare.match(cleaned)
    if found is None or (host := host_of(found[1])) is None:
        return None
    return host, (found[2] or "/") + found[3]


def host_of(authority: str | None) -> str | None:
    """Return the host of an authority: lower case, IDNA in its ASCII form, without user, port and trailing dots; None if invalid.

    Examples
    --------
    >>> host_of("user:pw@Bücher.DE.:8080"), host_of("[0:0::1]:80"), host_of("0x7f.1"), host_of("a b")
    ('xn--bcher-kva.de', '[::1]', '127.0.0.1', None)
    """
    if authority is None:
        return None
    host = authority.rpartition("@")[2]
    return _host(host) if len(host) <= 4 * MAX_HOST_CHARS else None


@functools.lru_cache(CACHED_HOSTS)
def _host(host: str) -> str | None:
    if host.startswith("["):
        address, closed, _ = host[1:].partition("]")
        return _ipv6(address) if closed else None
    host = host.partition(":")[0]
    host = unquote(host).translate(DOTS).rstrip(".").lower()
    if not host or len(host) > MAX_HOST_CHARS or _FORBIDDEN.search(host):
        return None
    if not host.isascii():
        host = _in_ascii(host)
        if not host or len(host) > MAX_HOST_CHARS or _FORBIDDEN.search(host):
            return None
    return _ipv4(host) if _NUMERIC.match(host.rpartition(".")[2]) else host


def _ipv6(address: str) -> str | None:
    try:
        return f"[{ipaddress.IPv6Address(address.partition('%')[0]).compressed}]"
    except ValueError:
        return None


def _ipv4(host: str) -> str | None:
    """Return a host that ends in a number as an IPv4 address, also if it is written in hexadecimal or with fewer parts."""
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return None


def _in_ascii(host: str) -> str:
    """Return the ASCII form of a host: by IDNA 2008 with UTS 46, or where that is not allowed (emoji), by Punycode alone."""
    import idna

    try:
        return idna.encode(host, uts46=True).decode("ascii").rstrip(".")
    except UnicodeError:
        labels = host.casefold().split(".")
    try:
        return ".".join(
            label if label.isascii() else "xn--" + label.encode("punycode").decode("ascii") for label in labels
        )
    except UnicodeError:  # a lone surrogate
        return ""


@functools.cache
def suffix_list() -> Any:
    """Return the public suffix list that tldextract contains; it reads no network and no cache."""
    from tldextract import TLDExtract

    return TLDExtract(cache_dir=None, suffix_list_urls=())


@functools.lru_cache(CACHED_HOSTS)
def registered_domain(host: str, *, private: bool = False) -> str | None:
    """Return the registered domain of a host: one label more than its public suffix; None if it has none.

    A last label that is not in the list counts as a suffix, as the list's own algorithm says.

    Examples
    --------
    >>> [registered_domain(host) for host in ("a.b.co.uk", "co.uk", "x.y.example", "localhost", "127.0.0.1")]
    ['b.co.uk', None, 'y.example', None, None]
    >>> registered_domain("me.github.io"), registered_domain("me.github.io", private=True)
    ('github.io', 'me.github.io')
    """
    if host.startswith("[") or "." not in host or _NUMERIC.match(host.rpartition(".")[2]):
        return None
    found = suffix_list()(host, include_psl_private_domains=private)
    if not found.suffix:
        *_, name, last = host.split(".")
        return f"{name}.{last}" if name else None
    return f"{found.domain}.{found.suffix}" if found.domain else None
