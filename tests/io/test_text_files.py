# SPDX-License-Identifier: Apache-2.0
"""A row for each text file, in any encoding, in bounded blocks."""

import bz2
import gzip
import lzma

import numpy as np
import pandas as pd
import pytest
import zstandard

import curator_df as cdf
from curator_df import errors
from curator_df.core.ranges.source import OFFSET_BITS, among
from curator_df.files.storage import QUARANTINE_FOLDER
from tests.core.runner.fake_client import inline_cluster

PACKERS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda content: zstandard.ZstdCompressor().compress(content),
}


def source_of(df):
    return df.expr.operand("func").source


def texts_of(path, **arguments):
    return cdf.read_text_files(path, **arguments).compute()["text"].tolist()


def test_a_row_is_a_file_with_its_path_and_address(tmp_path):
    for name, text in (("b.txt", "two\r\nlines\n"), ("a.md", ""), ("sub/c.text", "漢字 \0")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text.encode())
    rows = cdf.read_text_files(tmp_path).compute()
    assert rows["path"].tolist() == [str(tmp_path / name) for name in ("a.md", "b.txt", "sub/c.text")]
    assert rows["text"].tolist() == ["", "two\r\nlines\n", "漢字 \0"]
    assert rows.index.tolist() == [number << OFFSET_BITS for number in range(3)]
    assert rows.dtypes.tolist() == [pd.StringDtype("pyarrow")] * 2


@pytest.mark.parametrize("packing", PACKERS)
def test_compressed_files_are_decompressed(tmp_path, packing):
    (tmp_path / f"a.txt{packing}").write_bytes(PACKERS[packing]("été".encode() * 1000))
    assert texts_of(tmp_path) == ["été" * 1000]


def test_suffixes_choose_in_directories_and_not_where_files_are_named(tmp_path):
    for name in ("a.txt", "b.TXT", "c.rst", "d.rst.gz", "_e.txt"):
        content = name.encode()
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert texts_of(tmp_path) == ["a.txt", "b.TXT"]
    assert texts_of(tmp_path, suffixes=".rst") == ["c.rst", "d.rst.gz"]
    assert texts_of(tmp_path, suffixes=[""]) == ["a.txt", "b.TXT", "c.rst", "d.rst.gz"]
    assert texts_of(tmp_path / "*.rst") == ["c.rst"]
    with pytest.raises(errors.InputError, match=r"no file that ends in '?\.adoc"):
        cdf.read_text_files(tmp_path, suffixes=[".adoc"])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32-le", "shift_jis", "cp1252"])
def test_encodings(tmp_path, encoding):
    text = "naïve été " if encoding == "cp1252" else "漢字仮名交じり文 "
    text *= 200_000  # more than is decoded at a time
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    assert texts_of(tmp_path, encoding=encoding) == [text]


def test_a_mark_of_utf_8_is_taken_off(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone")
    assert texts_of(tmp_path) == ["one"]


def test_a_file_in_another_encoding_is_an_error_with_file_and_byte(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"x" * (1 << 20) + "é".encode("latin-1") + b"yy")
    with pytest.raises(errors.BadRowError, match=r"a\.txt', byte 1,048,576: the file is not utf-8.*encoding="):
        texts_of(tmp_path)
    assert texts_of(tmp_path, encoding="latin-1")[0][-3:] == "éyy"
    (tmp_path / "a.txt").write_bytes("漢".encode()[:2])  # ends in the middle of a character
    with pytest.raises(errors.BadRowError, match="byte 0: "):
        texts_of(tmp_path)


def test_a_file_in_another_encoding_is_set_aside(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xff")
    (tmp_path / "b.txt").write_bytes(b"good")
    with pytest.warns(UserWarning, match=r"1 bad row was skipped.*a\.txt"):
        assert texts_of(tmp_path, on_bad_rows="quarantine") == ["good"]
    bad = []
    source = source_of(cdf.read_text_files(tmp_path, on_bad_rows="quarantine"))
    list(source.blocks(source.cut(10**6)[0], block_bytes=10, on_bad_row=bad.append))
    assert [(row.path, row.offset) for row in bad] == [(str(tmp_path / "a.txt"), 0)]


@pytest.mark.parametrize("block_bytes", [1, 50, 10**6])
def test_blocks_are_bounded_and_hold_whole_files(tmp_path, block_bytes):
    texts = ["x" * size for size in (10, 300, 20, 0, 20, 20, 7)]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text)
    (tmp_path / "7.txt.gz").write_bytes(gzip.compress(b"y" * 5_000))  # more than its size promises
    source = source_of(cdf.read_text_files(tmp_path))
    blocks = [block for piece in source.cut(100) for block in source.blocks(piece, block_bytes=block_bytes)]
    assert [text for block in blocks for text in block["text"]] == [*texts, "y" * 5_000]
    assert all(len(block) == 1 or block["text"].str.len().sum() <= block_bytes for block in blocks)
    (wanted,) = source.blocks(source.cut(10**6)[0], block_bytes=10**6, wanted=among(np.array([3, 6]) << OFFSET_BITS))
    assert wanted["text"].tolist() == [texts[3], texts[6]]


@pytest.mark.parametrize("packing", ["", ".gz"])
def test_a_file_that_does_not_fit_is_refused_or_left_out(tmp_path, packing):
    (tmp_path / f"a.txt{packing}").write_bytes(PACKERS[packing](b"z" * 3_000_000))
    (tmp_path / "b.txt").write_bytes(b"small")
    source = source_of(cdf.read_text_files(tmp_path))
    (piece,) = source.cut(10**9)
    with pytest.raises(errors.OversizeRowError, match=r"a\.txt.*is one row, but only 1,000,000 bytes fit"):
        list(source.blocks(piece, block_bytes=1_000, largest_row_bytes=1_000_000))
    long = []
    (block,) = source.blocks(piece, block_bytes=1_000, largest_row_bytes=1_000_000, on_long_row=long.append)
    assert block["text"].tolist() == ["small"]
    assert long[0].row_bytes > 1_000_000


def test_a_run_writes_them_and_keeps_what_is_bad(tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(30):
        (tmp_path / f"in/{number:02}.txt").write_bytes(f"text {number}".encode() if number % 10 else b"\xff")
    with inline_cluster(memory="2GB", cpus=2):
        receipt = cdf.write_parquet(cdf.read_text_files(tmp_path / "in", on_bad_rows="quarantine"), tmp_path / "out")
    assert (receipt.rows_read, receipt.rows_written, receipt.rows_quarantined) == (30, 27, 3)
    assert pd.read_parquet(tmp_path / "out")["text"].tolist() == [f"text {n}" for n in range(30) if n % 10]
    assert len(list((tmp_path / "out" / QUARANTINE_FOLDER).iterdir())) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [({"encoding": "klingon"}, "is unknown to Python"), ({"encoding": "base64"}, "is unknown to Python")],
)
def test_unknown_encodings_are_refused(tmp_path, arguments, said):
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(errors.ParameterError, match=said):
        cdf.read_text_files(tmp_path, **arguments)


def test_the_encoding_is_called_as_the_user_calls_it(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xff")
    with pytest.raises(errors.BadRowError, match=r"byte 0: the file is not utf-8: byte 0 is 0xFF\. Set"):
        cdf.read_text_files(tmp_path).compute()


@pytest.mark.parametrize(
    ("content", "encoding", "said"),
    [
        (b"caf\xe9", "utf-8", "the file is not utf-8: byte 3 is 0xE9"),
        (b"x" * (1 << 20) + b"\x81", "shift_jis", "the file is not shift_jis: byte 1,048,576 is 0x81"),
        (b"+2AA-", "utf-7", "the file is not utf-7: it has a lone surrogate"),
        (bytes(3), "utf-8", "the file is not text: it begins with NUL bytes, as after a crash"),
        (bytes(1 << 20), "latin-1", "the file is not text: it begins with NUL bytes, as after a crash"),
    ],
)
def test_the_quarantine_has_the_byte_that_is_not_text(tmp_path, content, encoding, said):
    """The place in Python's error is that in the piece which was decoded."""
    (tmp_path / "a.txt").write_bytes(content)
    table = cdf.read_text_files(tmp_path, encoding=encoding, on_bad_rows="quarantine")
    with pytest.warns(UserWarning, match=said):
        assert len(table.compute()) == 0


def test_data_after_the_compressed_data_is_reported_and_the_text_is_kept(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.txt.gz").write_bytes(gzip.compress(b"text %d" % number) + b"other" * (number == 1))
    source = source_of(cdf.read_text_files(tmp_path, on_bad_rows="quarantine"))
    for block_bytes in (1, 10**6):
        bad = []
        blocks = list(source.blocks(source.cut_files(9)[0], block_bytes=block_bytes, on_bad_row=bad.append))
        assert [text for block in blocks for text in block["text"]] == ["text 0", "text 1", "text 2"]
        assert [(row.path, row.offset, row.raw) for row in bad] == [(str(tmp_path / "1.txt.gz"), 6, b"other")]
        assert "5 bytes of other data follow" in bad[0].reason
    with pytest.raises(errors.CorruptFileError, match="other data follows"):
        cdf.read_text_files(tmp_path).compute()
