# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

import numpy as np
import pytest

from curator_df.io.jsonl import scan
from curator_df.io.jsonl.lines import newline_positions
from curator_df.io.jsonl.scan import scan_lines


def scanned(data):
    array = np.frombuffer(data, np.uint8)
    lines, reasons = scan_lines(array, newline_positions(array, len(array)))
    return [data[a:b] for a, b in zip(lines.starts, lines.stops, strict=True)], lines.ordinals.tolist(), reasons


def test_blank_lines_are_no_lines_and_white_space_around_does_not_count():
    assert scanned(b"\n{}\n \t\r\n  {} \r\n") == ([b"{}", b"  {}"], [1, 3], [])


@pytest.mark.parametrize("window", [4, 1 << 18])
def test_much_white_space_is_trimmed(monkeypatch, window):
    monkeypatch.setattr(scan, "WINDOW_BYTES", window)
    assert scanned(b" " * 50 + b"{}" + b"\t" * 50 + b"\n" + b" " * 99 + b"\n") == ([b" " * 50 + b"{}"], [0], [])


def test_what_is_no_object_or_no_utf8_is_found():
    lines, _, reasons = scanned(b'{}\nnull\n{"a":"\xff"}\n{"a":"\xc3\xa9"}\n\xed\xa0\x80\n')
    assert len(lines) == 5
    assert reasons == [1, 2, 4]


def test_nothing_is_no_line():
    assert scanned(b"") == ([], [], [])


CRASHES = r"""
import numpy as np, pyarrow as pa
from curator_df.io.jsonl.parse import failing_lines, try_parse
from curator_df.io.jsonl.scan import scan_lines
generator = np.random.default_rng(SEED)
tokens = [b'{', b'}', b'{"a":', b'"b":', b'1', b'null', b'"x"', b'[', b']', b',', b'{}', b'"', b'\\', b'\\u0000',
          b'1e999', b'-', b'true', b'NaN', b':', b' ', b'"s":{"k":', b'"l":[', b'\\ud800', b'""', b'9' * 40, b'\r',
          b'\x00', b'/**/']
objects = pa.struct([("k", pa.struct([("k", pa.int64())]))])
schemas = [pa.schema([]), pa.schema([("a", pa.large_string()), ("b", pa.int64())]),
           pa.schema([("s", objects), ("l", pa.list_(pa.list_(pa.string())))])]
for round in range(ROUNDS):
    lines = [b'{' + b''.join(generator.choice(tokens, generator.integers(0, 12)).tolist()) + b'}' for _ in range(3)]
    if generator.random() < 0.2:
        lines.append(generator.choice([b'null', b'', b'5', b'[]']))
    data = np.frombuffer(b'\n'.join(lines) + b'\n', np.uint8).copy()
    found, reasons = scan_lines(data, np.flatnonzero(data == 10))
    for number in reasons:
        data[found.starts[number]:found.stops[number]] = 32
    mask = np.ones(len(found), bool); mask[list(reasons)] = False
    found = found.keep(mask)
    for schema in schemas:
        for ignore in (True, False):
            table = try_parse(data, found, schema, ignore_unknown=ignore)
            if isinstance(table, str):
                bad = list(failing_lines(data, found, schema, ignore_unknown=ignore))
                assert bad, (lines, table)
            else:
                table.validate(full=True)
                assert len(table) == len(found) or not len(schema)
depth = 200_000
for text in (b'{"c":' + b'[' * depth + b']' * depth + b'}', b'{"c":' * depth + b'1' + b'}' * depth):
    found, _ = scan_lines(np.frombuffer(text + b"\n", np.uint8), np.array([len(text)]))
    for schema in schemas:
        for ignore in (True, False):
            try_parse(np.frombuffer(text + b'\n', np.uint8), found, schema, ignore_unknown=ignore)
            list(failing_lines(np.frombuffer(text + b'\n', np.uint8), found, schema, ignore_unknown=ignore))
"""


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.proof)])
def test_nothing_that_passes_the_scan_crashes_the_parser(seed):
    code = CRASHES.replace("SEED", str(seed)).replace("ROUNDS", "200")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
