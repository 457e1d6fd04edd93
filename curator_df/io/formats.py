# SPDX-License-Identifier: Apache-2.0
"""Recognize other formats in files and lines that a reader cannot read, by their bytes, with advice."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from curator_df.files.storage import JOURNAL_FOLDER

MOST_LEVELS = 100
"""Maximum nesting depth of lists and objects in a column; pyarrow and pandas walk types by recursion."""
HEAD_BYTES = 512
"""Number of first bytes of a file that identify its format: the mark of a tar archive is the last one."""
WIDE_SHARE = 0.2
"""Share of NUL bytes above which text is in an encoding of two or four bytes a character."""
_BOMS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
# Possessive repetitions, which never go back: otherwise the search holds 120 bytes for each character of a string.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}:]')
LONGEST_PARSED = 1 << 20
"""Bytes of the longest line that is parsed only to explain why it is not read."""
MOST_SHOWN_AFTER = 20
"""Bytes after an object that a message shows."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_STRING_OR_CONTROL = re.compile(rb'"(?:[^"\\\x00-\x1f]++|\\.)*+(["\x00-\x1f])')
"""String, or the part of one before its first control character."""
_OBJECTS_APART_BY_CR = re.compile(rb"\}[ \t]*\r[ \t\r]*\{")
_OBJECTS_IN_ONE_LINE = re.compile(rb'\}[ \t]*\{[ \t]*"')
_OBJECTS_APART_BY_SEPARATOR = re.compile(rb"\}[ \t]*(?:\xe2\x80[\xa8\xa9]|\xc2\x85|[\x0b\x0c\x1c-\x1e])[ \t]*\{")
_JSON = re.compile(rb'\s*+[\[{]\s*+(?:["\[{]|\Z)')
"""Beginning of JSON, which is not that of a header."""


Kind = Literal["json", "csv", "text"]
"""Content that a file should have: JSON or WARC records, a table with a header, or any text."""
_GIT_LFS = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True)
class _Format:
    """Format that other programs write."""

    mark: bytes
    """Bytes that identify it."""
    name: str
    """Name of the format."""
    way_out: str
    """Advice for such a file."""
    at: int = 0
    """Position of the bytes."""

    def may_begin(self, kind: Kind) -> bool:
        """Tell whether a file of this kind can begin with these bytes: a header of CSV with letters and digits only."""
        if self.at or kind == "json" or self.mark.startswith(_GIT_LFS):
            return False
        return self.mark.isalnum() if kind == "csv" else self.mark.isascii() and self.mark.decode().isprintable()


_RENAME = "rename it so that its name ends in {}"
COMPRESSED_SUFFIXES = (".gz", ".gzip", ".zst", ".zstd", ".bz2", ".xz")
"""Suffixes of files that are decompressed while they are read."""
_TWICE = "it was compressed twice, so decompress it once (such as gunzip -c old.jsonl.gz > new.jsonl.gz)"
_UNPACK = "unpack it and read the unpacked files"
_FORMATS = (
    _Format(b"\x1f\x8b", "gzip data", _RENAME.format(".gz")),
    _Format(b"\x28\xb5\x2f\xfd", "zstd data", _RENAME.format(".zst")),
    _Format(b"BZh", "bzip2 data", _RENAME.format(".bz2")),
    _Format(b"\xfd7zXZ\x00", "xz data", _RENAME.format(".xz")),
    _Format(b"PK\x03\x04", "a ZIP archive", f"{_UNPACK} (unzip)"),
    _Format(b"PK\x05\x06", "an empty ZIP archive", "leave it out"),
    _Format(b"7z\xbc\xaf\x27\x1c", "a 7z archive", f"{_UNPACK} (7z x)"),
    _Format(b"Rar!\x1a\x07", "a RAR archive", f"{_UNPACK} (unrar x)"),
    _Format(b"ustar", "a tar archive", f"{_UNPACK} (tar -xf)", at=257),
    _Format(b"\x04\x22\x4d\x18", "LZ4 data", "compress it in another format (lz4 -dc old.lz4 | zstd -o new.jsonl.zst)"),
    _Format(b"\x02\x21\x4c\x18", "LZ4 data", "compress it in another format (lz4 -dc old.lz4 | zstd -o new.jsonl.zst)"),
    _Format(
        b"\xff\x06\x00\x00sNaPpY",
        "Snappy data",
        "compress it in another format (snzip -dc old.sz | zstd -o new.jsonl.zst)",
    ),
    _Format(
        b"\x1f\x9d", "data of compress", "compress it in another format (uncompress -c old.Z | zstd -o new.jsonl.zst)"
    ),
    _Format(b"PAR1", "Parquet", "read it with read_parquet"),
    _Format(b"PARE", "Parquet with an encrypted footer", "write it again without encryption"),
    _Format(b"\xff\xff\xff\xff", "an Arrow IPC stream", "write it as Parquet and read it with read_parquet"),
    _Format(b"ARROW1", "Arrow IPC (Feather)", "write it as Parquet and read it with read_parquet"),
    _Format(b"ORC", "ORC", "write it as Parquet and read it with read_parquet"),
    _Format(b"Obj\x01", "Avro", "write it as Parquet and read it with read_parquet"),
    _Format(b"\x89HDF", "HDF5", "write it as Parquet and read it with read_parquet"),
    _Format(
        b"SQLite format 3\x00", "an SQLite database", "write its tables as Parquet and read them with read_parquet"
    ),
    _Format(b"\x93NUMPY", "an array of NumPy", "write it as Parquet and read it with read_parquet"),
    *(
        _Format(bytes([0x80, protocol, following]), "a Python pickle", "write its rows as JSON Lines or Parquet")
        for protocol, followings in ((2, b"]}(cX)"), (3, b"]}(cX)"), (4, b"\x95"), (5, b"\x95"))
        for following in followings
    ),
    _Format(b"LZIP\x01", "lzip data", "compress it in another format (lzip -dc old.lz | zstd -o new.jsonl.zst)"),
    _Format(b"\x89LZO\x00", "LZO data", "compress it in another format (lzop -dc old.lzo | zstd -o new.jsonl.zst)"),
    _Format(b"\x5d\x00\x00", "LZMA data", "compress it in another format (xz -dc old.lzma | zstd -o new.jsonl.zst)"),
    _Format(b"\x89PNG", "a picture", "leave it out"),
    _Format(b"\xff\xd8\xff", "a picture", "leave it out"),
    _Format(b"GIF8", "a picture", "leave it out"),
    _Format(b"%PDF-", "a PDF document", "extract its text first"),
    _Format(b"WARC/", "a web crawl (WARC)", "read it with read_warc"),
    _Format(
        _GIT_LFS,
        "a pointer of Git LFS, not the data",
        "download the data (git lfs pull)",
    ),
    _Format(b"<!DOCTYPE", "an HTML page, which a server sent instead of a file", "download the file again"),
    _Format(b"<html", "an HTML page, which a server sent instead of a file", "download the file again"),
    _Format(b"<!doctype", "an HTML page, which a server sent instead of a file", "download the file again"),
    _Format(b"<?xml", "an XML document", "write its records as JSON Lines"),
)
_NAMES = {".snappy": "Snappy data", ".sz": "Snappy data", ".br": "Brotli data", ".lzo": "LZO data", ".lz4": "LZ4 data"}
"""Formats without a mark that all of their writers set, by file name extension."""


_PARQUET = "convert them to Parquet"
_NOT_READ = {
    ".zip": "unpack archives (unzip)",
    ".tar": "unpack archives (tar -xf)",
    ".tar.gz": "unpack archives (tar -xf)",
    ".tgz": "unpack archives (tar -xf)",
    ".tar.zst": "unpack archives (tar -xf)",
    ".7z": "unpack archives (7z x)",
    ".rar": "unpack archives (unrar x)",
    ".lz4": "compress them with zstd instead (lz4 -dc old.lz4 | zstd -o new.jsonl.zst)",
    ".snappy": "compress them with gzip or zstd instead",
    ".sz": "compress them with gzip or zstd instead",
    ".br": "compress them with zstd instead (brotli -dc old.br | zstd -o new.jsonl.zst)",
    ".lzo": "compress them with zstd instead (lzop -dc old.lzo | zstd -o new.jsonl.zst)",
    ".lzma": "compress them with zstd instead (xz -dc old.lzma | zstd -o new.jsonl.zst)",
    ".z": "compress them with zstd instead (uncompress -c old.Z | zstd -o new.jsonl.zst)",
    **dict.fromkeys((".orc", ".avro", ".feather", ".arrow", ".ipc", ".h5", ".hdf5", ".xlsx"), _PARQUET),
    **dict.fromkeys((".sqlite", ".sqlite3", ".db", ".pkl", ".pickle", ".npy", ".npz"), _PARQUET),
    **dict.fromkeys((".crdownload", ".part", ".partial", ".tmp"), "wait until their download ends, or rename them"),
}
"""Advice for files that no reader takes, by the end of their names."""


def ways_out(names: Iterable[str]) -> str:
    """Return advice for the names in a folder: of files that no reader takes, or of a run without rows; empty for others.

    Examples
    --------
    >>> ways_out(["corpus.zip", "b.zip", "c.jsonl"])
    '. Files in .zip are not read: unpack archives (unzip)'
    >>> ways_out(["_curator"])
    '. It is the folder of a run that has written no rows to it'
    """
    names = list(names)
    if names == [JOURNAL_FOLDER]:
        return ". It is the folder of a run that has written no rows to it"
    ends = (max((end for end in _NOT_READ if name.lower().endswith(end)), key=len, default="") for name in names)
    return "".join(f". Files in {end} are not read: {_NOT_READ[end]}" for end in sorted(set(ends)) if end)


def other_format(head: bytes, path: str, *, kind: Kind = "json") -> str | None:
    """Return the format of a file that is neither JSON nor plain text, with advice; None if it is unknown.

    Parameters
    ----------
    head : bytes
        First bytes of the file, decompressed if its name says that it is compressed.
    path : str
        Its path or URL: some formats are identified only by the end of the name.
    kind : {"json", "csv", "text"}, default "json"
        Content that the file should have: marks with which such a file can begin are ignored, unless NUL bytes follow.

    Examples
    --------
    >>> other_format(b"PAR1...", "a.jsonl")
    'Parquet (by its first bytes); read it with read_parquet'
    """
    for known in _FORMATS:
        if head.startswith(known.mark, known.at) and not (known.may_begin(kind) and b"\0" not in head):
            is_again = known.way_out.startswith(_RENAME.format("")) and path.lower().endswith(COMPRESSED_SUFFIXES)
            return f"{known.name} (by its first bytes); {_TWICE if is_again else known.way_out}"
    name = next((name for suffix, name in _NAMES.items() if path.lower().endswith(suffix)), None)
    return None if name is None else f"{name} (by its name); compress it with gzip or zstd instead"


def why_not_parquet(head: bytes) -> str | None:
    """Explain what a file without the end of a Parquet file is, by its first bytes, with advice; None if that is unknown.

    Examples
    --------
    >>> why_not_parquet(b"PAR1")
    'begins as a Parquet file, but is truncated or still being written. Download it again, or wait until it is complete'
    """
    if not head:
        return "is empty, which a Parquet file never is. Download it again, or leave it out"
    if head.startswith(b"PAR1"):
        way_out = "Download it again, or wait until it is complete"
        return f"begins as a Parquet file, but is truncated or still being written. {way_out}"
    if found := other_format(head, ""):
        name, _, way_out = found.partition("; ")
        if way_out.startswith(_RENAME.format("")):
            way_out = "decompress it first, because the pages of a Parquet file are compressed, not the file"
        return f"is not Parquet but {name}; {way_out}"
    if head.strip() and is_plain_text(head):
        return "is not Parquet but text. Read JSON Lines with read_jsonl, and CSV with read_csv"
    return None


def is_plain_text(head: bytes) -> bool:
    """Tell whether the first bytes of a file are text in UTF-8, which may end within a character."""
    try:
        head[: max(1, len(head) - 3)].decode()
    except UnicodeDecodeError as exc:
        if exc.reason != "unexpected end of data":
            return False
    return b"\0" not in head


def wide_encoding(data: bytes, *, is_first: bool = True) -> str | None:
    """Return the encoding of text with two or four bytes for each character; None for other encodings.

    Parameters
    ----------
    data : bytes
        A part of a file that begins with a character of ASCII.
    is_first : bool
        Whether it is the beginning of the file: elsewhere, a line begins in the middle of a character.

    Examples
    --------
    >>> wide_encoding('{"a": 1}'.encode("utf-16-le")), wide_encoding(b'{"a": 1}')
    ('UTF-16LE', None)
    """
    for mark, name in _BOMS.items():
        if data.startswith(mark):
            return name
    nulls = data.count(b"\0")
    if nulls == len(data) or nulls < WIDE_SHARE * len(data):
        return None
    name = "UTF-32" if b"\0\0\0" in data else "UTF-16"
    if not is_first:
        return name
    width = 4 if name == "UTF-32" else 2
    first = data[:width]  # a character of ASCII; otherwise it is not text, but another format with numbers
    if len(first) < width or first.count(b"\0") != width - 1 or not (first[:1] == b"\0" or first[-1:] == b"\0"):
        return None
    letter = first.strip(b"\0")
    return name + ("BE" if first[:1] == b"\0" else "LE") if letter >= b" " or letter in b"\t\r\n" else None


def _is_every_character_wide(raw: bytes) -> bool:
    """Tell whether at most one of four bytes in a row is not NUL somewhere, and NUL bytes come at equal distances."""
    return len({place % 4 for place, byte in enumerate(raw[: 1 << 16].strip(b"\0")) if byte}) <= 2


def latin_1(suffix: str) -> str:
    """Return advice for a file with text that is not UTF-8, whose name ends in this suffix."""
    convert = f"iconv -f WINDOWS-1252 -t UTF-8 old.{suffix} > new.{suffix}"
    return f"If the file is Latin-1 or Windows-1252, convert it ({convert})"


def begins_as_json(record: bytes) -> bool:
    """Tell whether the first record of a file is the beginning of JSON, not a header.

    Examples
    --------
    >>> begins_as_json(b'{"id": 1}'), begins_as_json(b"["), begins_as_json(b"id,text")
    (True, True, False)
    """
    return _JSON.match(record) is not None


def why_no_row(raw: bytes, path: str, *, is_first: bool) -> str:
    """Explain why a line is not one JSON object, as far as its bytes show.

    Parameters
    ----------
    raw : bytes
        The line.
    path : str
        Its file.
    is_first : bool
        Whether the file begins with it, so that it identifies the file.
    """
    found = other_format(raw, path) if is_first else None
    if found is not None:
        return f"the file is {found}"
    encoding = wide_encoding(raw[: 1 << 16], is_first=is_first)
    if not is_first and b"\0\0" in raw and not _is_every_character_wide(raw):
        return "it holds NUL bytes among its characters, which a crash while it was written leaves behind"
    if encoding is not None:
        convert = f"iconv -f {encoding} -t UTF-8 old.jsonl > new.jsonl"
        return f"the file is {encoding}, but JSON Lines must be UTF-8; convert it ({convert})"
    if not raw.strip(b"\0 \t\r"):
        return "it has only NUL bytes, as after a crash while it was written"
    try:
        raw.decode()
    except UnicodeDecodeError as exc:
        return f"it is not UTF-8: byte {exc.start + 1:,} of the line is 0x{raw[exc.start]:02X}. {latin_1('jsonl')}"
    is_object = raw.lstrip(b" \t\r").startswith(b"{") and raw.rstrip(b" \t\r").endswith(b"}")
    found = control_character(raw) or _lone_surrogate(raw) if is_object else None
    return found or f"it is not one JSON object on one line{_shape(raw, is_first)}"


def _after_object(text: bytes) -> bytes:
    """Return the bytes after the JSON object at the start of a UTF-8 line; empty if there are none, or there is no object."""
    if len(text) > LONGEST_PARSED:
        return b""
    line = text.decode()
    try:
        _, end = json.JSONDecoder().raw_decode(line)
    except (ValueError, RecursionError):
        return b""
    return line[end:].strip(" \t\r").encode()


def _lone_surrogate(raw: bytes) -> str | None:
    """Describe half of a surrogate pair in a string or a key of JSON; None without one."""
    if len(raw) > LONGEST_PARSED or not _SURROGATE.search(raw):
        return None
    try:
        json.dumps(json.loads(raw), ensure_ascii=False).encode()
    except UnicodeEncodeError as exc:
        return f"a string has half of a surrogate pair, \\u{ord(exc.object[exc.start]):04x}, which is not a character"
    except (ValueError, RecursionError):
        return None
    return None


def control_character(raw: bytes) -> str | None:
    """Describe the first control character in a string of JSON, which pyarrow calls an invalid encoding; None without one."""
    ends = (found[1] for found in _STRING_OR_CONTROL.finditer(raw))
    code = next((ord(end) for end in ends if end != b'"'), None)
    return (
        None
        if code is None
        else f"a string has the control character 0x{code:02X}, which JSON must write as \\u{code:04x}"
    )


def levels_of_fields(raw: bytes) -> dict[str, int]:
    """Return how many levels deep the value of each field of a JSON object nests, without recursion; 0 for a plain value.

    Examples
    --------
    >>> levels_of_fields(b'{"id": 1, "tags": [["a"], []], "meta": {"x": 1}}')
    {'id': 0, 'tags': 2, 'meta': 1}
    """
    deepest: dict[str, int] = {}
    depth, name, last = 0, "", b""
    for match in _TOKEN.finditer(raw):
        token = match.group()
        if token in b"{[":
            depth += 1
            if name:
                deepest[name] = max(deepest[name], depth - 1)
        elif token in b"}]":
            depth -= 1
        elif token == b":" and depth == 1 and last.startswith(b'"'):
            with suppress(ValueError):  # a name that is not JSON, in a line that is none
                name = str(json.loads(last))
                deepest[name] = 0
        last = token
    return deepest


def _shape(raw: bytes, is_first: bool) -> str:
    """Describe the shape of a UTF-8 line that is not a JSON object."""
    text = raw.strip(b" \t\r")
    begins, ends = text.startswith(b"{"), text.endswith(b"}")
    after = _after_object(text) if begins else b""
    goes_on = (
        "the file begins with a JSON object that spans several lines" if is_first else "the object does not end on it"
    )
    array = "the file is a JSON array" if is_first else "it is a JSON array"
    shapes = (
        (
            text.startswith(b"\xef\xbb\xbf"),
            ", because a byte order mark precedes it; such a mark inside a file remains after joining files",
        ),
        (
            text.startswith(b"\x1e"),
            ", because a record separator (0x1E) precedes it; remove them (tr -d '\\036' < old.jsonl > new.jsonl)",
        ),
        (
            _OBJECTS_APART_BY_CR.search(text) is not None,
            ": lines of the file end in only CR; convert them to LF (tr '\\r' '\\n' < old.jsonl > new.jsonl)",
        ),
        (
            _OBJECTS_APART_BY_SEPARATOR.search(text) is not None,
            ": only LF ends a line, but another separator (such as U+2028) is between objects",
        ),
        (
            after.startswith(b"{") or (begins and ends and _OBJECTS_IN_ONE_LINE.search(text) is not None),
            ": it has several objects, as after joining files without a line end; write each on its own line (jq -c . old.jsonl)",
        ),
        (
            text.startswith(b"["),
            f": {array}; write each element on its own line (jq -c '.[]' old.json > new.jsonl)",
        ),
        (
            begins and text.endswith(b"},"),
            ": it ends in a comma, like an element of a JSON array; remove the comma (jq -c '.[]' old.json > new.jsonl)",
        ),
        (
            after != b"",
            f": other characters follow the object, {after[:MOST_SHOWN_AFTER]!r}; remove them",
        ),
        (
            begins and not ends,
            f": {goes_on}; write each object on one line (jq -c . old.json > new.jsonl)",
        ),
        (
            text.startswith(b"{'"),
            ": it is the repr of a Python dict, not JSON; write rows with json.dumps",
        ),
    )
    said = next((words for is_so, words in shapes if is_so), "")
    if not said and begins and ends and (deepest := max(levels_of_fields(text).values(), default=0)) > MOST_LEVELS:
        return (
            f" with at most {MOST_LEVELS} levels: it nests {deepest:,} levels deep; name other columns with columns=, and their "
            "types with dtype="
        )
    return said
