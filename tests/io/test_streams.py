# SPDX-License-Identifier: Apache-2.0
import bz2
import gzip
import lzma
import os
import zlib

import fsspec
import pytest
import zstandard

from curator_df.errors import CorruptFileError, InputError
from curator_df.io.streams import file_stream
from curator_df.io.streams.file_stream import open_bytes
from curator_df.memory.system import status_bytes
from tests.io.warc_files import dictionary_frame

TEXT = b"".join(b"line %d of some text\n" % number for number in range(50_000))
ZSTD = zstandard.ZstdCompressor(write_checksum=True)
COMPRESS = {
    "gz": lambda data: gzip.compress(data, 1),
    "zst": ZSTD.compress,
    "bz2": bz2.compress,
    "xz": lambda data: lzma.compress(data, preset=0),
}
FORMATS = pytest.mark.parametrize("suffix", list(COMPRESS))


def read(path, step=70_000):
    buffer = bytearray(step)
    pieces = []
    with open_bytes(str(path)) as stream:
        while count := stream.readinto(memoryview(buffer)):
            pieces.append(bytes(buffer[:count]))
    return b"".join(pieces)


@FORMATS
def test_members_that_follow_each_other_are_one_text(tmp_path, suffix):
    path = tmp_path / f"a.jsonl.{suffix.upper()}"
    compress = COMPRESS[suffix]
    path.write_bytes(compress(TEXT[:10]) + compress(b"") + compress(TEXT[10:]))
    assert read(path) == TEXT
    assert read(path, step=999) == TEXT


@FORMATS
def test_an_empty_file_and_an_empty_member_hold_nothing(tmp_path, suffix):
    for data in (b"", COMPRESS[suffix](b"")):
        path = tmp_path / f"a.{suffix}"
        path.write_bytes(data)
        assert read(path) == b""


@FORMATS
@pytest.mark.parametrize("lost", [1, 5, 1000])
def test_a_truncated_file_is_an_error_that_says_how_far(tmp_path, suffix, lost):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(COMPRESS[suffix](TEXT)[:-lost])
    with pytest.raises(CorruptFileError, match=rf"a\.{suffix}' is damaged or truncated.*; [\d,]+ decompressed bytes"):
        read(path)


@FORMATS
def test_a_flipped_byte_is_an_error(tmp_path, suffix):
    data = bytearray(COMPRESS[suffix](TEXT))
    data[len(data) // 2] ^= 0x55
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(data)
    with pytest.raises(CorruptFileError):
        read(path)


@FORMATS
def test_garbage_before_or_after_is_an_error(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    for data in (b"garbage" * 9, COMPRESS[suffix](TEXT) + b"garbage" * 9):
        path.write_bytes(data)
        with pytest.raises(CorruptFileError):
            read(path)


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz"])
@pytest.mark.parametrize("garbage", [b"x", b"garbage", b"\r\n", bytes(3) + b"rest"])
def test_other_data_after_the_members_is_told_by_its_place(tmp_path, suffix, garbage):
    path = tmp_path / f"a.{suffix}"
    data = COMPRESS[suffix](TEXT) * 2
    path.write_bytes(data + garbage)
    skipped = 3 if suffix != "bz2" and garbage[:1] == b"\0" else 0
    remedy = "gzip -dc" if suffix == "gz" else f"head -c {len(data) + skipped} old.{suffix} > new.{suffix}"
    message = f"from byte {len(data) + skipped:,} of the file on .*{remedy}.*{len(TEXT) * 2:,} decompressed"
    with pytest.raises(CorruptFileError, match=message) as told:
        read(path)
    assert repr(garbage[skipped:]) in str(told.value)


@FORMATS
@pytest.mark.parametrize("garbage", [b"x", b"garbage" * 9, b"\r\n", b"r" * 400_000])
def test_other_data_after_the_compressed_data_is_handed_over(tmp_path, suffix, garbage):
    path, found = tmp_path / f"a.{suffix}", []
    packed = COMPRESS[suffix](TEXT) * 2
    path.write_bytes(packed + garbage)
    buffer, pieces = memoryview(bytearray(70_000)), []
    with open_bytes(str(path), on_trailing=lambda *arguments: found.append(arguments)) as stream:
        while count := stream.readinto(buffer):
            pieces.append(bytes(buffer[:count]))
        assert not stream.readinto(buffer)
    assert b"".join(pieces) == TEXT * 2
    ((offset, reason, shown),) = found
    assert (offset, shown) == (len(TEXT) * 2, garbage[:16])
    count = "1 byte of other data follows" if len(garbage) == 1 else f"{len(garbage):,} bytes of other data follow"
    assert reason == f"{count} the compressed data, from byte {len(packed):,} of the file on"


def test_zeros_may_pad_a_gzip_file(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(TEXT) + bytes(300_000))
    assert read(path) == TEXT


def test_a_wrong_checksum_is_an_error(tmp_path):
    path = tmp_path / "a.gz"
    data = bytearray(gzip.compress(TEXT))
    data[-6] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptFileError, match="incorrect data check"):
        read(path)


def gzip_with(flags, extra=b"", text=TEXT, **trailer):
    """Return a gzip member with these header flags, and a checksum and a length other than the right ones if given."""
    deflate = zlib.compressobj(1, zlib.DEFLATED, -15)
    body = deflate.compress(text) + deflate.flush()
    crc, size = trailer.get("crc", zlib.crc32(text)), trailer.get("size", len(text) & 0xFFFFFFFF)
    return (
        b"\x1f\x8b\x08"
        + bytes([flags])
        + bytes(6)
        + extra
        + body
        + crc.to_bytes(4, "little")
        + size.to_bytes(4, "little")
    )


def header_crc(flags):
    return (zlib.crc32(b"\x1f\x8b\x08" + bytes([flags]) + bytes(6)) & 0xFFFF).to_bytes(2, "little")


WRONG_GZIP = {
    "size": (gzip_with(0, size=len(TEXT) + 1), "incorrect length check"),
    "size of nothing": (gzip_with(0, text=b"", size=1), "incorrect length check"),
    "checksum": (gzip_with(0, crc=1), "incorrect data check"),
    "checksum of the header": (gzip_with(2, b"\x12\x34"), "header crc mismatch"),
    "reserved flag": (gzip_with(0x80), "unknown header flags set"),
    "name that does not end": (b"\x1f\x8b\x08\x08" + bytes(6) + b"name", "ends too early"),
    "trailer cut off": (gzip_with(0)[:-4], "ends too early"),
}


@pytest.mark.parametrize("wrong", WRONG_GZIP)
@pytest.mark.parametrize(
    "before", [b"", gzip_with(0), gzip_with(2, header_crc(2)) * 2], ids=["first", "second", "third"]
)
@pytest.mark.parametrize("read_bytes", [1, 7, file_stream.READ_BYTES])
def test_what_a_gzip_header_and_trailer_promise_is_checked_in_every_member(
    tmp_path, monkeypatch, wrong, before, read_bytes
):
    if read_bytes == 1 and before:
        pytest.skip("minutes; members read byte by byte are covered by the first")
    monkeypatch.setattr(file_stream, "READ_BYTES", read_bytes)
    data, message = WRONG_GZIP[wrong]
    (tmp_path / "a.gz").write_bytes(before)
    assert len(read(tmp_path / "a.gz")) % len(TEXT) == 0
    (tmp_path / "a.gz").write_bytes(before + data)
    with pytest.raises(CorruptFileError, match=message):
        read(tmp_path / "a.gz")


def test_what_a_zstd_header_and_trailer_promise_is_checked(tmp_path):
    path = tmp_path / "a.zst"
    good = ZSTD.compress(TEXT)
    size_at = good.index(len(TEXT).to_bytes(4, "little"), 4, 20)
    for wrong in (len(TEXT) - 1, len(TEXT) + 1, len(TEXT) + 10_000):
        for before in (b"", good):
            path.write_bytes(before + good[:size_at] + wrong.to_bytes(4, "little") + good[size_at + 4 :])
            with pytest.raises(CorruptFileError, match=r"a\.zst' is damaged"):
                read(path)
    path.write_bytes(good + good[:-4] + bytes(4))
    with pytest.raises(CorruptFileError, match="checksum"):
        read(path)
    skipped = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"01234"
    path.write_bytes(skipped + good + skipped + good)
    assert read(path) == TEXT * 2


def test_a_zstd_window_that_is_too_large_is_refused_with_the_way_out(tmp_path):
    path = tmp_path / "a.zst"
    parameters = zstandard.ZstdCompressionParameters(window_log=28, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    path.write_bytes(compressor.compress(b"x" * 100) + compressor.flush())
    with pytest.raises(CorruptFileError, match=r"a\.zst' cannot be read: a frame needs a window of more than 128 MiB"):
        read(path)


def test_an_xz_dictionary_that_is_too_large_is_refused_with_the_way_out(tmp_path):
    path = tmp_path / "a.xz"
    path.write_bytes(lzma.compress(TEXT, filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 28}]))
    said = r"a\.xz' cannot be read: it needs a dictionary of more than 128 MiB; write it again \(xz -dc old\.xz \| xz > new\.xz\)"
    with pytest.raises(CorruptFileError, match=said):
        read(path)


@pytest.mark.parametrize("suffix", ["gz", "zst", "bz2"])
def test_a_bomb_is_read_in_a_few_megabytes(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    size = 100_000_000
    path.write_bytes(COMPRESS[suffix](bytes(size)))
    buffer = memoryview(bytearray(1 << 20))
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before, total = status_bytes("VmRSS"), 0
    with open_bytes(str(path)) as stream:
        while count := stream.readinto(buffer):
            total += count
    assert total == size
    assert status_bytes("VmHWM") - before < 32_000_000


def test_a_file_that_vanished_is_an_error(tmp_path):
    with (
        pytest.raises(InputError, match="although it existed when its folder was listed"),
        open_bytes(str(tmp_path / "gone")),
    ):
        pass


@pytest.mark.parametrize(
    ("folder", "what", "again"),
    [
        (
            "spool/frompandas-06fe-f10bd10a",
            "rows of a table of Dask or pandas, or of blend without path=,",
            "the function that made this table again",
        ),
        (
            "find_near_duplicates-dd4464e2d63511e5",
            "result of find_near_duplicates",
            "find_near_duplicates again, with workdir=",
        ),
    ],
)
def test_what_lay_in_the_working_files_of_a_closed_cluster_is_named(tmp_path, folder, what, again):
    said = rf"^the {what} lay in the working files of a cluster that is closed \(.*Start a cluster, and call {again}"
    with pytest.raises(InputError, match=said), open_bytes(str(tmp_path / "found" / folder / "part-000001.parquet")):
        pass


def test_urls_are_read(tmp_path):
    fsspec.filesystem("memory").pipe_file("/streams/a.gz", gzip.compress(TEXT))
    assert read("memory:///streams/a.gz") == TEXT


def test_seek_starts_in_the_middle(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(TEXT)
    buffer = bytearray(4)
    with open_bytes(os.fspath(path)) as stream:
        stream.seek(5)
        stream.readinto(memoryview(buffer))
    assert bytes(buffer) == TEXT[5:9]


DICTIONARY_LINES = [b"line %d of some text\n" % (number * number) for number in range(3_000)]


def test_a_zstd_file_may_begin_with_its_dictionary(tmp_path):
    dictionary = zstandard.train_dictionary(3_000, DICTIONARY_LINES)
    packer = zstandard.ZstdCompressor(dict_data=dictionary)
    frames = b"".join(map(packer.compress, DICTIONARY_LINES))
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(dictionary.as_bytes())
    path = tmp_path / "a.jsonl.zst"
    for content in (dictionary.as_bytes(), zstandard.compress(dictionary.as_bytes()), unsized):
        path.write_bytes(dictionary_frame(content) + frames)
        assert read(path) == b"".join(DICTIONARY_LINES)
        path.write_bytes(dictionary_frame(content) + frames[:-3])
        with pytest.raises(CorruptFileError, match="ends in the middle of a zstd frame"):
            read(path)


def test_other_skippable_frames_are_passed_over(tmp_path):
    path = tmp_path / "a.zst"
    path.write_bytes(dictionary_frame(b"a note") + ZSTD.compress(TEXT) + dictionary_frame(b"") + ZSTD.compress(TEXT))
    assert read(path) == TEXT + TEXT


@pytest.mark.parametrize(
    ("beginning", "said"),
    [
        (dictionary_frame(b"\x37\xa4\x30\xec" + b"x" * 100), "its zstd dictionary cannot be read: "),
        (dictionary_frame(zstandard.compress(b"\x37\xa4\x30\xec" * 9)[:-5]), "its zstd dictionary cannot be read: "),
        (dictionary_frame(b"\x37\xa4\x30\xec", 1 << 30), "1,073,741,824 bytes, but curator_df reads at most 8,388,608"),
        (
            dictionary_frame(zstandard.compress(bytes(10**8))),
            "100,000,000 bytes, but curator_df reads at most 8,388,608",
        ),
        (
            dictionary_frame(b"\x37\xa4\x30\xec", 10**7 // 2),
            "the zstd dictionary at the beginning of the file is truncated",
        ),
        (b"", "need a dictionary that is not at its beginning"),
    ],
)
def test_a_dictionary_that_cannot_be_used_is_named(tmp_path, beginning, said):
    dictionary = zstandard.train_dictionary(3_000, DICTIONARY_LINES)
    frames = b"".join(map(zstandard.ZstdCompressor(dict_data=dictionary).compress, DICTIONARY_LINES[:9]))
    (tmp_path / "a.zst").write_bytes(beginning + frames)
    with pytest.raises(CorruptFileError, match=said):
        read(tmp_path / "a.zst")
