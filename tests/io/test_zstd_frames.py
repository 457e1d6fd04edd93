# SPDX-License-Identifier: Apache-2.0
import io

import pytest
import zstandard

import curator_df as cdf
from curator_df import errors
from curator_df.io.streams.file_stream import ZSTD_MAGIC, TrailingData
from curator_df.io.streams.zstd_frames import ZstdFrames
from tests.io.warc_files import rows_of, source_of, wet

RECORDS = [wet(f"page {number} " + "word " * (number * 37 % 91), number) for number in range(12)]
PACKED = [zstandard.ZstdCompressor(write_checksum=True).compress(one) for one in RECORDS]
STARTS = [sum(map(len, PACKED[:number])) for number in range(len(PACKED) + 1)]
SKIPPABLE = b"\x53\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"


def read(data):
    return b"".join(ZstdFrames(io.BytesIO(data)).pieces())


def test_frames_and_what_may_be_skipped_between_them_are_read():
    assert read(b"".join(PACKED)) == b"".join(RECORDS)
    assert read(SKIPPABLE.join(PACKED) + SKIPPABLE) == b"".join(RECORDS)


@pytest.mark.parametrize("garbage", [b"x", b"\n", b"\0" * 9, b"garbage" * 99, ZSTD_MAGIC[1:], bytes(400_000)])
def test_other_data_after_the_frames_is_told_by_its_place(garbage):
    frames, found = ZstdFrames(io.BytesIO(b"".join(PACKED) + garbage)), []
    with pytest.raises(TrailingData, match=f"from byte {STARTS[-1]:,} of the file on") as told:
        found.extend(frames.pieces())
    assert told.value.at == STARTS[-1]
    assert told.value.shown == garbage[:16]
    pieces = ZstdFrames(io.BytesIO(b"".join(PACKED) + garbage)).pieces()
    for _ in range(len(found)):
        next(pieces)


@pytest.mark.parametrize("held", [1, 2, 3, 4, 7])
def test_a_frame_that_ends_after_its_first_bytes_is_truncated(held):
    with pytest.raises(EOFError, match="ends in the middle of a zstd frame"):
        read(b"".join(PACKED) + PACKED[0][:held])


def source(folder, content):
    (folder / "a.wet.zst").write_bytes(content)
    return source_of(cdf.read_warc(folder / "a.wet.zst", on_bad_rows="quarantine"))


@pytest.mark.parametrize("change", ["checksum", "magic", "block", "lost bytes", "other data"])
@pytest.mark.parametrize("place", [0, 4, 11])
def test_records_after_a_damaged_frame_are_read_and_the_bytes_passed_over_are_named(tmp_path, change, place):
    frames = list(PACKED)
    frame = bytearray(frames[place])
    if change == "checksum":
        frame[-1] ^= 1
    elif change == "magic":
        frame[1] ^= 0x55
    elif change == "block":
        frame[len(frame) // 2] ^= 0x55
    elif change == "lost bytes":
        del frame[len(frame) // 2 : len(frame) // 2 + 5]
    else:
        frame = bytearray(b"no frame at all " * 9)
    frames[place] = bytes(frame)
    rows, bad = rows_of(source(tmp_path, b"".join(frames)), 10**9)
    kept = [text for _, text in rows]
    assert [text for text in kept if not text.startswith(f"page {place} ")] == kept
    assert len(kept) == len(RECORDS) - 1
    begins, ends = STARTS[place], STARTS[place] + len(frame)
    (row,) = bad
    assert f"passed over {ends - begins:,} bytes of the file, from byte {begins:,}" in row[1]
    assert f"to byte {ends:,}, where " in row[1]
    assert ("where the file ends" in row[1]) == (place == 11)
    assert len({address for address, _ in rows}) == len(rows)
    with pytest.raises(errors.CorruptFileError, match="the compressed data is damaged"):
        cdf.read_warc(tmp_path / "a.wet.zst").compute()


def test_a_dictionary_that_is_missing_is_an_error_of_the_file_and_not_a_bad_row(tmp_path):
    dictionary = zstandard.train_dictionary(4_000, RECORDS * 20)
    packer = zstandard.ZstdCompressor(dict_data=dictionary)
    table = source(tmp_path, b"".join(map(packer.compress, RECORDS)))
    with pytest.raises(errors.CorruptFileError, match="need a dictionary that is not at its beginning"):
        rows_of(table, 10**9)


@pytest.mark.parametrize("suffix", ["bz2", "xz"])
def test_what_is_damaged_in_a_file_without_frames_is_one_bad_record_up_to_the_end(tmp_path, suffix):
    import bz2
    import lzma

    pack = {"bz2": bz2.compress, "xz": lzma.compress}[suffix]
    content = pack(b"".join(RECORDS)) + b"other data"
    (tmp_path / f"a.wet.{suffix}").write_bytes(content)
    table = cdf.read_warc(tmp_path / f"a.wet.{suffix}", on_bad_rows="quarantine")
    rows, bad = rows_of(source_of(table), 10**9)
    assert len(rows) == len(RECORDS)
    ((_, reason),) = bad
    assert "other data follows the compressed data" in reason
    assert f"to byte {len(content):,}, where the file ends" in reason
    with pytest.raises(errors.CorruptFileError, match="other data follows"):
        cdf.read_warc(tmp_path / f"a.wet.{suffix}").compute()
