# SPDX-License-Identifier: Apache-2.0
"""Hashes of windows are the polynomials that the definition says, however a text is cut into chunks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from curator_df.kernels.minhash import shingle_hashes as rolled_windows
from curator_df.kernels.text.murmur_windows import CHUNK_WINDOWS
from tests.kernels.minhash_reference import character_shingles

PRIME = (1 << 61) - 1
TEXTS = st.lists(st.sampled_from(["a", "plain words. " * 20, "é", "木" * 30, "\0", "€uro ", "x" * 2_000, "😀\n"])).map(
    "".join
)


def polynomial(window):
    """Return what the hash of the bytes of a window is to be."""
    state = 0
    for byte in window:
        state = (state * int(rolled_windows._POINT) + byte + 1) % PRIME
    spread = state * int(rolled_windows._SPREAD) % (1 << 64)
    return spread ^ (spread >> 32)


def rolled(text, width):
    """Return the hashes of all windows of a text, a chunk at a time."""
    data = np.frombuffer(text, dtype=np.uint8)
    going, hashes = np.empty(CHUNK_WINDOWS + width, dtype=np.int64), np.empty(CHUNK_WINDOWS, dtype=np.uint64)
    at, found = 0, []
    while True:
        at, count = rolled_windows.roll_windows(data, at, len(data), width, going, hashes)
        if count == 0:
            return found
        found += hashes[:count].tolist()


@given(TEXTS, st.sampled_from([1, 2, 24, 300]))
@example("x" * 5_000, 3_000)
@example("plain words. " * 400 + "é" + "plain words. " * 300, 24)
def test_any_text(text, width):
    windows = character_shingles(text, width) if len(text) >= width else []
    assert rolled(text.encode(), width) == [polynomial(window.encode()) for window in windows]


@pytest.mark.parametrize("text", [b"\x80\x80ab\x80c" * 100, b"a" + b"\x80" * 9_000 + b"bcd", b"\xff\xfe\xc3"], ids=len)
def test_bytes_that_are_no_utf_8(text):
    starts = [place for place, byte in enumerate(text) if place == 0 or byte & 0xC0 != 0x80] + [len(text)]
    ends = zip(starts, starts[2:], strict=False)
    assert rolled(text, 2) == [polynomial(text[first:end]) for first, end in ends]


def test_zeros_and_lengths_tell_windows_apart():
    hashes = {rolled(text, len(text))[0] for text in (b"\0", b"\0\0", b"a", b"\0a", b"a\0")}
    assert len(hashes) == 5
