# SPDX-License-Identifier: Apache-2.0
"""Files of JSON Lines, plain, gzip, zstd, bzip2 and xz, with bytes changed at random: each is read, or is an error of ours.

    python benchmarks/damaged_jsonl.py [--files 10000] [--seed 0] [--first 0] [--kinds jsonl,jsonl.xz]

A plain file: the rows read and those quarantined are as many as its lines that are not blank, every row quarantined has the bytes
of its line, and a line that was not changed is read to the same row. A compressed file is read whole, to the same rows, or not at
all; other data after it is one bad row.
"""

from __future__ import annotations

import argparse
import bz2
import collections
import gzip
import itertools
import json
import lzma
import os
import random
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import zstandard

from curator_df.errors import CorruptFileError, CuratorError
from curator_df.io.jsonl.reader import read_jsonl

TYPES = {"id": "int64", "text": "string", "score": "float64"}
PACK = {
    "jsonl.gz": lambda part: gzip.compress(part, 1, mtime=0),
    "jsonl.zst": zstandard.ZstdCompressor(write_checksum=True).compress,
    "jsonl.bz2": bz2.compress,
    "jsonl.xz": lzma.compress,
}
KINDS = ("jsonl", *PACK)
TIMES = itertools.count(1_600_000_000)
SPECIAL = b'{}[]":,\\\n\r\t \0\x7f\x80\xff\xef-+.eE0123456789nulltrufas'


def plain_file(chance: random.Random) -> bytes:
    """Return some rows of many shapes."""
    texts = ["", "plain", "é漢\U0001f600", "a\u2028b\x85", 'q"\\/\b\f\n\r\t', "x" * 300]
    rows: list[dict[str, Any]] = []
    for number in range(chance.randint(1, 30)):
        row: dict[str, Any] = {
            "id": number,
            "text": chance.choice(texts),
            "score": chance.choice([0.5, 1e300, 3, None]),
        }
        if chance.random() < 0.5:
            row["meta"] = {"tags": ["a", None], "deep": [[{"n": number}], []], "ok": True}
        rows.append(row)
    return "".join(json.dumps(row, ensure_ascii=chance.random() < 0.5) + "\n" for row in rows).encode()


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Change, insert, delete, copy or cut off some bytes."""
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2, 3, 8, 30])):
        at = chance.randrange(len(changed) + 1)
        way = chance.randrange(7)
        if way == 0 and at < len(changed):
            changed[at] ^= 1 << chance.randrange(8)
        elif way == 1 and at < len(changed):
            changed[at] = chance.randrange(256)
        elif way == 2 and at < len(changed):
            changed[at] = chance.choice(SPECIAL)
        elif way == 3:
            changed[at:at] = bytes(chance.choices(SPECIAL, k=chance.randint(1, 4)))
        elif way == 4:
            del changed[at : at + chance.randint(1, 20)]
        elif way == 5:
            start = chance.randrange(len(changed) + 1)
            changed[at:at] = changed[start : start + chance.randint(1, 100)]
        elif chance.random() < 0.3:
            del changed[at:]
    return bytes(changed)


def put(path: Path, data: bytes) -> None:
    """Write a file, with a time of the past: a file that was modified just now is read a clock tick later."""
    path.write_bytes(data)
    modified = next(TIMES)
    os.utime(path, (modified, modified))


def read(
    path: Path, quarantines: bool, types: dict[str, Any] | None, block_bytes: int
) -> tuple[list[tuple[int, Any]], list[Any]]:
    """Return the rows with their addresses, and the bad rows."""
    table = read_jsonl(path, dtype=types, on_bad_rows="quarantine" if quarantines else "raise")
    source = table.expr.operand("func").source
    rows, aside = [], []
    for piece in source.cut(10**9):
        for block in source.blocks(piece, block_bytes=block_bytes, on_bad_row=aside.append):
            values = block.astype(object).to_dict("records") if len(block.columns) else [{}] * len(block)  # pandas: []
            rows += list(zip(block.index.tolist(), values, strict=True))
    return rows, aside


def check_plain(path: Path, before: bytes, chance: random.Random) -> str:
    """Check a file that is not compressed; return what became of it."""
    data = damaged(before, chance)
    put(path, data)
    for types in (TYPES, None):
        try:
            rows, aside = read(path, True, types, chance.choice([50, 1000, 10**6]))
        except CuratorError as exc:
            if types is not None or "No valid row was found at the start of 1 file" not in str(exc):
                raise AssertionError(f"with quarantine: {exc}") from exc
            continue
        starts, offset = {}, 0
        for line in data.split(b"\n"):
            text = line.removeprefix(b"\xef\xbb\xbf") if not offset else line
            if text.strip(b" \t\r"):
                starts[offset] = line
            offset += len(line) + 1
        found = sorted([address for address, _ in rows] + [row.offset for row in aside])
        assert found == sorted(starts), f"rows at {found}, lines at {sorted(starts)}"
        for row in aside:
            expected = starts[row.offset]
            assert row.raw.strip() == expected.rstrip(b" \t\r").strip() or not row.offset, (row, expected)
            assert row.line == data.count(b"\n", 0, row.offset) + 1
            assert row.reason
        whole = set(before.split(b"\n"))
        for address, row in rows:
            if starts[address] in whole:
                was = json.loads(starts[address])
                assert all(row[name] == was[name] or was[name] is None for name in ("id", "text", "score")), (row, was)
    try:
        read(path, False, TYPES, 1000)
    except CuratorError as exc:
        _require(str(path) in str(exc), exc)
        return type(exc).__name__
    return "read"


def check_packed(path: Path, chance: random.Random, packed: bytes) -> str:
    """Check a compressed file; return what became of it."""
    put(path, packed)
    wanted = read(path, True, TYPES, 1000)
    put(path, damaged(packed, chance))
    try:
        rows = read(path, True, TYPES, 1000)
    except CorruptFileError as exc:
        _require(str(path) in str(exc), exc)
        return "CorruptFileError"
    except CuratorError as exc:  # nothing of it is left
        return f"{type(exc).__name__}: {str(exc)[len(str(path)) : len(str(path)) + 60]}"
    if repr(rows) == repr(wanted):
        return "the same"
    # No format can tell that whole members were left out or came twice.
    known = {repr(row) for _, row in wanted[0]}
    bad = [
        row for row in rows[1] if "the compressed data, from byte" not in row.reason
    ]  # other data follows whole members
    _require(not bad and all(repr(row) in known for _, row in rows[0]), f"other rows: {rows}")
    return "other members"


def _require(is_so: bool, found: Any) -> None:
    if not is_so:
        raise AssertionError(found)


def main() -> int:
    """Run, and print what became of the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("files", 10_000), ("seed", 0), ("first", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--kinds", default=",".join(KINDS), help="ends of the names of the files, by default all")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    failed = 0
    for kind in given.kinds.split(","):
        became: collections.Counter[str] = collections.Counter()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"a.{kind}"
            for number in range(given.first, given.first + given.files):
                chance = random.Random(f"{given.seed} {number}")  # noqa: S311 - no secret
                before = plain_file(chance)
                parts = [before] if chance.random() < 0.7 else [before, b"", before]
                try:
                    if kind == "jsonl":
                        became[check_plain(path, before, chance)] += 1
                    else:
                        packed = b"".join(PACK[kind](part) for part in parts)
                        became[check_packed(path, chance, packed)] += 1
                except Exception as exc:  # noqa: BLE001 - what is neither read nor an error of ours is what is looked for
                    failed += 1
                    print(
                        f"{kind}, seed {given.seed}, file {number}: {type(exc).__name__}: {str(exc)[:400]}", flush=True
                    )
        print(kind, dict(became), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
