# SPDX-License-Identifier: Apache-2.0
"""Files of CSV and TSV, plain, gzip, zstd, bzip2 and xz, with bytes changed at random: each is read, or is an error of ours.

    python benchmarks/damaged_csv.py [--files 10000] [--seed 0] [--first 0] [--kinds csv,tsv.xz]

A plain file: the rows read and those quarantined are as many as the records that Python's csv module finds, whatever the block
size, unless a quotation mark never closes, and a row that is read has the fields that this module gives. A compressed file
is read whole, to the same rows, or not at all; other data after it is one bad row.
"""

from __future__ import annotations

import argparse
import bz2
import collections
import csv
import gzip
import io
import itertools
import lzma
import os
import random
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import zstandard

from curator_df.errors import CorruptFileError, CuratorError
from curator_df.io.csv.reader import read_csv

TYPES = {"id": "int64", "text": "string", "score": "float64"}
DELIMITERS = {"csv": ",", "tsv": "\t", "csv.gz": ",", "tsv.zst": "\t", "csv.bz2": ",", "tsv.xz": "\t"}
PACK = {
    "csv.gz": lambda part: gzip.compress(part, 1, mtime=0),
    "tsv.zst": zstandard.ZstdCompressor(write_checksum=True).compress,
    "csv.bz2": bz2.compress,
    "tsv.xz": lzma.compress,
}
TIMES = itertools.count(1_600_000_000)
SPECIAL = b'""",,\t\t\n\n\r\r \0\x7f\x80\xff\xef-+.eE0123456789;|\\'


def plain_file(chance: random.Random, delimiter: str) -> bytes:
    """Return some records of many shapes."""
    texts = ["", "plain", "é漢\U0001f600", "a\u2028b\x85", 'q"\\/', "a\nb", "a\r\nb", "x,y\tz", "x" * 300]
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter, lineterminator=chance.choice(["\n", "\r\n"]))
    writer.writerow(TYPES)
    for number in range(chance.randint(1, 30)):
        writer.writerow([number, chance.choice(texts), chance.choice(["0.5", "1e300", "3", ""])])
    return out.getvalue().encode()


def damaged(data: bytes, chance: random.Random, first: int) -> bytes:
    """Change, insert, delete, copy or cut off some bytes from a place on."""
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2, 3, 8, 30])):
        at = chance.randrange(min(first, len(changed)), len(changed) + 1)
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


def read(path: Path, block_bytes: int, delimiter: str, **arguments: Any) -> tuple[list[tuple[int, Any]], list[Any]]:
    """Return the rows with their addresses, and the bad rows."""
    source = read_csv(path, delimiter=delimiter, **arguments).expr.operand("func").source
    rows, aside = [], []
    for piece in source.cut(10**9):
        for block in source.blocks(piece, block_bytes=block_bytes, on_bad_row=aside.append):
            rows += list(zip(block.index.tolist(), block.astype(object).to_dict("records"), strict=True))
    return rows, aside


def records_of(data: bytes, delimiter: str) -> list[list[str]]:
    """Return the records that are not blank lines; each byte is one character, so that bytes that are not UTF-8 stay."""
    text = io.StringIO(data.removeprefix(b"\xef\xbb\xbf").decode("latin-1"), newline="")
    return [record for record in csv.reader(text, delimiter=delimiter) if record]


def check_plain(path: Path, before: bytes, chance: random.Random, delimiter: str) -> str:
    """Check a file that is not compressed; return what became of it."""
    header = before.index(b"\n") + 1
    data = damaged(before, chance, 0 if chance.random() < 0.2 else header)
    put(path, data)
    wanted = records_of(data, delimiter)[1:]
    # Inferred types depend on the damage, and a header on its names: only the file must be named then.
    for types in (TYPES, None):
        try:
            rows, aside = read(path, chance.choice([50, 1000, 10**6]), delimiter, dtype=types, on_bad_rows="quarantine")
        except CuratorError as exc:
            _require(types is None or not data.startswith(before[:header]), f"with quarantine: {exc}")
            continue
        if any(
            "never closes" in row.reason for row in aside
        ):  # the lines after it are records, unlike in the csv module
            continue
        _require(len(rows) + len(aside) == len(wanted), f"{len(rows)} + {len(aside)} rows of {len(wanted)} records")
        addresses = sorted([address for address, _ in rows] + [row.offset for row in aside])
        _require(len(set(addresses)) == len(addresses), f"two rows at one place: {addresses}")
        is_checked = types is not None and data.startswith(before[:header])
        places = {address: place for place, address in enumerate(addresses)}
        for address, row in rows:
            _require(not is_checked or _same(row, wanted[places[address]]), f"{row} of {wanted[places[address]]}")
    try:
        read(path, 1000, delimiter, dtype=TYPES)
    except CuratorError as exc:
        _require(str(path) in str(exc) or "column" in str(exc), exc)
        return type(exc).__name__
    return "read"


def _same(row: dict[str, Any], fields: list[str]) -> bool:
    values = [None if pd.isna(row.get(name)) else row[name] for name in TYPES]
    number, text, score = [field.encode("latin-1").decode() for field in fields]
    return (
        values[0] == (int(number) if number.strip() else None)
        and (values[1] or "") == text
        and (values[2] is None or values[2] == float(score))
    )


def check_packed(path: Path, chance: random.Random, packed: bytes, delimiter: str) -> str:
    """Check a compressed file; return what became of it."""
    put(path, packed)
    wanted = read(path, 1000, delimiter, dtype=TYPES, on_bad_rows="quarantine")
    put(path, damaged(packed, chance, 0))
    try:
        rows = read(path, 1000, delimiter, dtype=TYPES, on_bad_rows="quarantine")
    except CorruptFileError as exc:
        _require(str(path) in str(exc), exc)
        return "CorruptFileError"
    except CuratorError as exc:  # nothing of it is left
        return f"{type(exc).__name__}: {str(exc)[len(str(path)) : len(str(path)) + 60]}"
    if repr(rows) == repr(wanted):
        return "the same"
    known = {repr(row) for _, row in wanted[0]}
    bad = [
        row
        for row in rows[1]
        if "the compressed data, from byte" not in row.reason and row.raw != HEADER[path.suffixes[0]]
    ]
    _require(not bad and all(repr(row) in known for _, row in rows[0]), f"other rows: {rows}")
    return "other members"


HEADER = {".csv": b"id,text,score", ".tsv": b"id\ttext\tscore"}


def _require(is_so: bool, found: Any) -> None:
    if not is_so:
        raise AssertionError(found)


def main() -> int:
    """Run, and print what became of the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("files", 10_000), ("seed", 0), ("first", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--kinds", default=",".join(DELIMITERS), help="ends of the names of the files, by default all")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    failed = 0
    for kind in given.kinds.split(","):
        delimiter = DELIMITERS[kind]
        became: collections.Counter[str] = collections.Counter()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"a.{kind}"
            for number in range(given.first, given.first + given.files):
                chance = random.Random(f"{given.seed} {number}")  # noqa: S311 - no secret
                before = plain_file(chance, delimiter)
                parts = [before] if chance.random() < 0.7 else [before, b"", before]
                try:
                    if kind in PACK:
                        became[check_packed(path, chance, b"".join(map(PACK[kind], parts)), delimiter)] += 1
                    else:
                        became[check_plain(path, before, chance, delimiter)] += 1
                except Exception as exc:  # noqa: BLE001 - what is neither read nor an error of ours is what is looked for
                    failed += 1
                    said = f"{type(exc).__name__}: {str(exc)[:400]}"
                    print(f"{kind}, seed {given.seed}, file {number}: {said}", flush=True)
        print(kind, dict(became), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
