# SPDX-License-Identifier: Apache-2.0
"""Lists of domains, URLs and expressions as files: their checks, their identity, and their hashes.

A list is a folder with the files ``domains``, ``urls`` and ``expressions`` (any of them, plain or compressed), as the lists of
UT1 and squidGuard are; or one file with a domain on each line. Lines that are empty or begin with ``#`` do not count.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator_df.arguments import did_you_mean_path, path_of
from curator_df.errors import BadRowError, InputChangedError, InputError, ParameterError, outside_level
from curator_df.files.storage import Folder, reading_errors
from curator_df.io.formats import COMPRESSED_SUFFIXES
from curator_df.io.listing import list_files
from curator_df.io.streams.file_stream import open_bytes
from curator_df.kernels.urls.listed import ENTRY_BYTES, HashedLists, hashes_of, matches
from curator_df.kernels.urls.parts import split_url
from curator_df.memory.sizes import show_count

Kind = Literal["domains", "urls", "expressions"]
"""Kind of the entries of a file."""
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Mapping[str, str | os.PathLike[str]]
"""Folders or files, or a name for each."""
CHUNK_BYTES = 1 << 18
"""Number of bytes that are read together."""
LONGEST_LINE_BYTES = 1 << 13
"""Maximum length of a line, in bytes."""
LOAD_BYTES = 8_000_000
"""Memory for the lines of a chunk while lists are read, in bytes. Measured (private bytes), a million domains or URLs: 2 MB."""

_PLAIN = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]*[a-z_-][a-z0-9_-]*)+")
"""Domains that are keys without further work: lower case ASCII, and no address of numbers."""
_PREFIX = re.compile(r"(?:www|web|ftp)[0-9]*\.")


@dataclass(frozen=True)
class ListFile:
    """File of a list."""

    number: int
    """Number of the list."""
    kind: Kind
    """Kind of its entries."""
    digest: str
    """Digest (BLAKE2b) of its lines."""
    entries: int = field(metadata={"identity": False})
    """Number of entries."""
    path: str = field(metadata={"identity": False})
    """Path of the file."""


@dataclass(frozen=True)
class UrlLists:
    """Lists as files that workers read again."""

    names: tuple[str, ...]
    """Name of each list, in order."""
    files: tuple[ListFile, ...]
    """Files, in the order of the lists."""
    expressions: tuple[tuple[int, str], ...]
    """Expressions, each with the number of its list."""
    is_raw: bool
    """True if entries are compared unchanged, in the way of datatrove."""
    longest_url: int
    """Number of characters of the longest key of a URL."""
    storage_options: Mapping[str, Any] = field(default_factory=dict, metadata={"identity": False}, repr=False)
    """Options for fsspec."""

    def entries(self, kind: Kind) -> int:
        """Return the number of entries of a kind."""
        return sum(file.entries for file in self.files if file.kind == kind)

    @property
    def held_bytes(self) -> int:
        """Memory of the hashes in each worker, in bytes."""
        return ENTRY_BYTES * (self.entries("domains") + 2 * self.entries("urls"))

    def domains(self) -> HashedLists:
        """Read the domains again, and hash them.

        Raises
        ------
        InputChangedError
            If a file has changed since the step was made.
        """
        return self._hashed("domains", raw if self.is_raw else domain_key)

    def urls(self) -> tuple[HashedLists, HashedLists]:
        """Read the URLs again, and hash them, and the first part of each up to the first slash; see `domains`."""
        entries = self.entries("urls")
        hosts, at = np.empty(entries, dtype=np.uint64), 0

        def noted(batch: pa.Array) -> pa.Array:
            nonlocal at
            hosts[at : at + len(batch)] = hashes_of(pc.replace_substring_regex(batch, "(?s)/.*", ""))
            at += len(batch)
            return batch

        urls = self._hashed("urls", raw if self.is_raw else url_key, noted)
        hosts.sort()
        return urls, HashedLists(hosts, (0, entries))

    def _hashed(
        self, kind: Kind, key: Callable[[str], str | None], noted: Callable[[pa.Array], pa.Array] | None = None
    ) -> HashedLists:
        own = {file.number: file for file in self.files if file.kind == kind}
        read = (
            _batches(own[number], key, self.storage_options) if number in own else ()
            for number in range(len(self.names))
        )
        lists = (batches if noted is None else map(noted, batches) for batches in read)
        return HashedLists.of(lists, self.entries(kind))


def raw(line: str) -> str | None:
    """Return a line itself as the key of an entry."""
    return line


def domain_key(line: str) -> str | None:
    """Return the host that a line of a list of domains names, None if it names none.

    Examples
    --------
    >>> domain_key("Example.COM."), domain_key("*.example.com"), domain_key("0.0.0.0 example.com")
    ('example.com', 'example.com', None)
    """
    if _PLAIN.fullmatch(line):
        return line
    line = line.removeprefix("*").removeprefix(".")
    found = split_url(line if "//" in line else f"//{line}")
    return found[0] if found is not None and found[1] == "/" else None


def url_key(line: str) -> str | None:
    """Return the form in which URLs are compared: without scheme, user, port, fragment, ``www.`` and final slash, in lower case.

    Examples
    --------
    >>> url_key("HTTP://www3.Foo.Bar:8080/What/Ever/?a#b"), url_key("foo.bar/dir/"), url_key("not a URL")
    ('foo.bar/what/ever/?a', 'foo.bar/dir', None)
    """
    found = split_url(line if "//" in line.partition("?")[0] else f"//{line}")
    return None if found is None else comparable(*found)


def comparable(host: str, rest: str) -> str:
    """Return the form in which a URL is compared, from its host, and its path with the query."""
    return f"{_PREFIX.sub('', host, count=1) if _PREFIX.match(host) else host}{rest}".lower().rstrip("/")


def find_lists(
    operator: str, parameter: str, lists: Paths, is_raw: bool, storage_options: Mapping[str, Any] | None
) -> UrlLists:
    """Read lists once, to check them and to determine their contents."""
    options = dict(storage_options or {})
    names: list[str] = []
    files: list[ListFile] = []
    expressions: list[tuple[int, str]] = []
    longest = 0
    for name, path in _named(operator, parameter, lists):
        before = len(files)
        with reading_errors(path):
            found = _files_of(operator, parameter, path, options)
        for kind, file in found:
            scanned = _scan(file, kind, is_raw, options)
            files.append(ListFile(len(names), kind, scanned.digest, scanned.entries, file))
            expressions += [(len(names), pattern) for pattern in scanned.expressions]
            longest = max(longest, scanned.longest)
        if not any(file.entries for file in files[before:]):
            raise InputError(f"{operator}: {parameter}={path!r} has no entries. Pass a list with at least one")
        names.append(name)
    if len(set(names)) < len(names):
        again = next(name for name in names if names.count(name) > 1)
        raise ParameterError(
            f"{operator}: two lists of {parameter}= have the name {again!r}. Pass a dict of names to paths"
        )
    return UrlLists(tuple(names), tuple(files), tuple(expressions), is_raw, longest, options)


def read_words(path: str, storage_options: Mapping[str, Any] | None = None) -> list[str]:
    """Return the lines of a file of words."""
    return [line for _, lines in _lines(path, storage_options) for line in lines if _counts(line)]


@dataclass
class _Scanned:
    digest: str = ""
    entries: int = 0
    longest: int = 0
    expressions: list[str] = field(default_factory=list)


def _named(operator: str, parameter: str, lists: Paths) -> list[tuple[str, str]]:
    if isinstance(lists, Mapping):
        named = [(name, path_of(operator, parameter, path)) for name, path in lists.items()]
    elif isinstance(lists, Sequence) and not isinstance(lists, (str, bytes)):
        named = [("", path_of(operator, parameter, path)) for path in lists]
    else:
        named = [("", path_of(operator, parameter, lists))]
    return [(name or _name_of(path), path) for name, path in named]


def _name_of(path: str) -> str:
    """Return the name of a list: of its folder, or of its file without suffixes.

    Examples
    --------
    >>> _name_of("lists/adult/"), _name_of("mine.txt.gz"), _name_of("lists/adult/domains.gz")
    ('adult', 'mine', 'adult')
    """
    folder, _, name = path.rstrip("/").rpartition("/")
    stem = _stem(name)
    above = folder.rpartition("/")[2]
    return above if stem in get_args(Kind) and above else stem


def _stem(name: str) -> str:
    for suffix in (*COMPRESSED_SUFFIXES, ".txt", ".list"):
        name = name[: -len(suffix)] if name.lower().endswith(suffix) else name
    return name


def _files_of(operator: str, parameter: str, path: str, options: dict[str, Any]) -> list[tuple[Kind, str]]:
    """Return the files of a list, each with its kind."""
    home = Folder(path.rstrip("/") or "/", options)
    if home.is_local and os.path.lexists(home.url) and not os.path.isdir(home.url):
        list_files(home.url)  # raises for a link that leads nowhere
    parent, _, name = home.url.rpartition("/")
    info = Folder(parent or "/", options).info(name)
    if info is None and not home.names():
        hint = did_you_mean_path(home.url) if home.is_local else ""
        raise InputError(f"{operator}: {parameter}={path!r} does not exist. Correct the path{hint}")
    if info is not None and info["type"] != "directory":
        stem = _stem(posixpath.basename(home.url))
        return [(next((kind for kind in get_args(Kind) if kind == stem), "domains"), home.url)]
    found: list[tuple[Kind, str]] = []
    for kind in get_args(Kind):
        names = [each for each in (kind, *(kind + suffix for suffix in COMPRESSED_SUFFIXES)) if home.exists(each)]
        if len(names) > 1:
            raise InputError(
                f"{operator}: {parameter}={path!r} has both {names[0]} and {names[1]}. Delete or rename one of them"
            )
        found += [(kind, f"{home.url}/{each}") for each in names]
    if not found:
        raise InputError(
            f"{operator}: {parameter}={path!r} is a folder without a file named domains, urls or expressions (plain or "
            "compressed). Pass the folder of a list, such as blacklists/adult, or a file with a domain on each line"
        )
    return found


def _scan(path: str, kind: Kind, is_raw: bool, options: Mapping[str, Any]) -> _Scanned:
    """Read a file once and check its lines."""
    scanned, digest = _Scanned(), hashlib.blake2b(digest_size=16)
    key = _key_of(kind, is_raw)
    ignored, first = 0, ""
    for start, lines in _lines(path, options):
        for number, line in enumerate(lines, start):
            if not _counts(line):
                continue
            digest.update(line.encode() + b"\n")
            found = key(line)
            if found is None:
                ignored += 1
                first = first or f"line {number:,}: {line[:80]!r}"
                continue
            scanned.entries += 1
            if kind == "urls":
                scanned.longest = max(scanned.longest, len(found))
            elif kind == "expressions":
                _require_expression(path, number, line)
                scanned.expressions.append(line)
    what = "a domain" if kind == "domains" else "a URL"
    if ignored > scanned.entries:
        raise BadRowError(
            f"{path!r} is not a list of {kind}: {ignored:,} of {show_count(ignored + scanned.entries, 'line')} are not "
            f"exactly one {what.partition(' ')[2]}. The first of these lines is {first}. Pass a text file with {what} on "
            "each line"
        )
    if ignored:
        warnings.warn(
            f"{path!r} has {show_count(ignored, 'line')} without {what}, or with more than it; keep_urls ignores "
            f"{'them' if ignored > 1 else 'it'}. The first is {first}",
            UserWarning,
            stacklevel=outside_level(),
        )
    scanned.digest = digest.hexdigest()
    return scanned


def _key_of(kind: Kind, is_raw: bool) -> Callable[[str], str | None]:
    if is_raw or kind == "expressions":
        return raw
    return domain_key if kind == "domains" else url_key


def _require_expression(path: str, number: int, pattern: str) -> None:
    try:
        matches(pa.array([""]), pattern)
    except pa.ArrowInvalid as exc:
        raise BadRowError(
            f"line {number:,} of {path!r} is not a regular expression of RE2: {str(exc).splitlines()[0]}. Correct or delete "
            "the line"
        ) from exc


def _batches(file: ListFile, key: Callable[[str], str | None], options: Mapping[str, Any]) -> Iterator[pa.Array]:
    """Yield the keys of a file's entries again."""
    digest, entries = hashlib.blake2b(digest_size=16), 0
    for _, lines in _lines(file.path, options):
        counted = [line for line in lines if _counts(line)]
        digest.update("".join(f"{line}\n" for line in counted).encode())
        keys = [found for line in counted if (found := key(line)) is not None]
        entries += len(keys)
        if entries > file.entries:
            break
        yield pa.array(keys, pa.large_string())
    if entries != file.entries or digest.hexdigest() != file.digest:
        raise InputChangedError(
            f"the list of URLs {file.path!r} has changed since keep_urls was called. Call keep_urls again, and write to another "
            "output folder"
        )


def _counts(line: str) -> bool:
    return bool(line) and not line.startswith("#")


def _lines(path: str, options: Mapping[str, Any] | None) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of a file in batches, stripped, each with the number of its first line, from 1."""
    if Folder(path, options or {}).is_local:
        list_files(path)  # raises for a pipe, which would be waited for
    number, left = 1, b""
    with open_bytes(path, options) as stream:
        buffer = bytearray(CHUNK_BYTES)
        while True:
            read = stream.readinto(memoryview(buffer))
            if read:
                whole, newline, left = (left + buffer[:read]).rpartition(b"\n")
                if len(left) > LONGEST_LINE_BYTES:
                    raise _too_long(path, number + whole.count(b"\n") + len(newline))
                if not newline:
                    continue
            elif left:
                whole, left = left, b""
            else:
                return
            yield number, _decoded(path, number, bytes(whole))
            number += whole.count(b"\n") + 1


def _too_long(path: str, number: int) -> BadRowError:
    return BadRowError(f"line {number:,} of {path!r} is longer than 8 kB. {_EXPECTED}")


_EXPECTED = "A list is a text file in UTF-8 with one entry on each line, plain or compressed"


def _decoded(path: str, number: int, data: bytes) -> list[str]:
    if number == 1:
        data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        text = data.decode()
    except UnicodeDecodeError as exc:
        at = number + data.count(b"\n", 0, exc.start)
        raise BadRowError(f"line {at:,} of {path!r} is not UTF-8 (byte 0x{data[exc.start]:02x}). {_EXPECTED}") from exc
    if "\0" in text:
        at = number + text.count("\n", 0, text.index("\0"))
        raise BadRowError(f"line {at:,} of {path!r} has a NUL byte, so it is not a list. {_EXPECTED}")
    lines = [line.strip() for line in text.split("\n")]
    if max(map(len, lines)) > LONGEST_LINE_BYTES:
        raise _too_long(path, number + next(at for at, line in enumerate(lines) if len(line) > LONGEST_LINE_BYTES))
    return lines
