# SPDX-License-Identifier: Apache-2.0
import bz2
import gzip
import io
import lzma
import re
import tarfile
import zipfile

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import curator_df as cdf
from curator_df.errors import BadRowError, ColumnError, CorruptFileError, InputError, SchemaError
from curator_df.io.csv.reader import read_csv
from curator_df.io.formats import control_character, other_format, why_no_row, wide_encoding
from curator_df.io.jsonl.reader import read_jsonl
from curator_df.io.output.write import write_jsonl
from curator_df.io.parquet.reader import read_parquet
from curator_df.io.text_files import read_text_files
from curator_df.io.warc.reader import read_warc
from curator_df.memory.system import status_bytes
from curator_df.ops.cleaning.normalization import normalize_unicode

ROWS = '{"id": 1, "text": "café"}\n{"id": 2, "text": "naïve"}\n'
PLAIN = ROWS.encode()


def zipped():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.jsonl", PLAIN)
    return file.getvalue()


def tarred():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo("a.jsonl")
        member.size = len(PLAIN)
        archive.addfile(member, io.BytesIO(PLAIN))
    return file.getvalue()


FORMATS = {
    "a.zip": (zipped(), "a ZIP archive .*unzip"),
    "a.jsonl": (zipped(), "a ZIP archive .*unzip"),
    "a.tar": (tarred(), "a tar archive .*tar -xf"),
    "a.tar.gz": (gzip.compress(tarred()), "a tar archive .*tar -xf"),
    "a.tar.zst": (zstandard.compress(tarred()), "a tar archive .*tar -xf"),
    "a.7z": (b"7z\xbc\xaf\x27\x1c\0\4" + bytes(40), "a 7z archive .*7z x"),
    "a.rar": (b"Rar!\x1a\x07\x01\0" + bytes(40), "a RAR archive .*unrar"),
    "a.jsonl.lz4": (pa.compress(PLAIN, "lz4", asbytes=True), "LZ4 data .*zstd"),
    "b.lz4": (b"\x04\x22\x4d\x18" + bytes(40), r"LZ4 data \(by its first bytes\); .*zstd"),
    "a.jsonl.snappy": (pa.compress(PLAIN, "snappy", asbytes=True), r"Snappy data \(by its name\)"),
    "a.sz": (b"\xff\x06\x00\x00sNaPpY" + bytes(40), r"Snappy data \(by its first bytes\)"),
    "a.jsonl.br": (pa.compress(PLAIN, "brotli", asbytes=True), r"Brotli data \(by its name\)"),
    "c.jsonl": (gzip.compress(PLAIN), r"gzip data .*rename it so that its name ends in \.gz"),
    "d.jsonl": (zstandard.compress(PLAIN), r"zstd data .*rename it so that its name ends in \.zst"),
    "e.jsonl": (bz2.compress(PLAIN), r"bzip2 data .*rename it so that its name ends in \.bz2"),
    "f.jsonl": (lzma.compress(PLAIN), r"xz data .*rename it so that its name ends in \.xz"),
    "g.jsonl": (b"PAR1" + bytes(40), "Parquet .*read_parquet"),
    "h.jsonl": (b"ARROW1\0\0" + bytes(40), "Arrow IPC"),
    "i.jsonl": (b"WARC/1.0\r\nWARC-Type: warcinfo\r\n\r\n", "a web crawl .*read_warc"),
    "j.jsonl": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a pointer of Git LFS, .*git lfs pull"),
    "l.jsonl": (b"\x89HDF\r\n\x1a\n" + bytes(40), r"HDF5 \(by its first bytes\); write it as Parquet"),
    "m.jsonl": (b"\x80\x04\x95" + bytes(40), "a Python pickle .*as JSON Lines or Parquet"),
    "n.jsonl": (b"\x80\x02}q\0" + bytes(40), "a Python pickle .*as JSON Lines or Parquet"),
    "o.jsonl": (b"\x89PNG\r\n\x1a\n" + bytes(40), "a picture"),
    "p.jsonl": (b"\x93NUMPY\x01\0" + bytes(40), "an array of NumPy"),
    "q.jsonl": (lzma.compress(PLAIN, lzma.FORMAT_ALONE), "LZMA data .*zstd"),
    "r.jsonl": (b"<?xml version='1.0'?>\n<a/>\n", "an XML document"),
    "k.jsonl": (b"<!DOCTYPE html>\n<html>502</html>\n", "an HTML page"),
}
ENCODINGS = ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]


@pytest.mark.parametrize("name", FORMATS)
def test_another_format_is_named_with_the_way_out(tmp_path, name):
    data, message = FORMATS[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BadRowError, match=rf"line 1 \(byte 0\): the file is {message}"):
        read_jsonl(tmp_path / name).compute()


@pytest.mark.parametrize("name", FORMATS)
def test_another_format_among_rows_is_named_when_it_is_read(tmp_path, name):
    data, message = FORMATS[name]
    (tmp_path / "0.jsonl").write_bytes(PLAIN)
    (tmp_path / name).write_bytes(data)
    paths = [tmp_path / "0.jsonl", tmp_path / name]
    with pytest.raises(BadRowError, match=rf"line 1 \(byte 0\): the file is {message}"):
        read_jsonl(paths).compute()
    with pytest.warns(UserWarning, match=f"the file is {message}"):
        read_jsonl(paths, on_bad_rows="quarantine").compute()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_wide_encodings_are_named(tmp_path, encoding):
    (tmp_path / "a.jsonl").write_bytes(ROWS.encode(encoding))
    name = encoding.upper() if encoding in ("utf-16", "utf-32") else encoding.upper()[:6] + encoding.upper()[7:]
    with pytest.raises(
        BadRowError, match=f"the file is {name}, but JSON Lines must be UTF-8; .*iconv -f {name} -t UTF-8"
    ):
        read_jsonl(tmp_path)
    (tmp_path / "0.jsonl").write_bytes(PLAIN)
    with pytest.raises(BadRowError, match=f"the file is {name}, .*iconv -f {name}"):
        read_jsonl(tmp_path).compute()


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_a_byte_that_is_not_utf8_is_shown_with_its_place(tmp_path, encoding):
    (tmp_path / "a.jsonl").write_bytes(ROWS.encode(encoding))
    message = r"line 1 \(byte 0\): it is not UTF-8: byte 23 of the line is 0xE9\. .*iconv -f WINDOWS-1252"
    with pytest.raises(BadRowError, match=message):
        read_jsonl(tmp_path)
    (tmp_path / "0.jsonl").write_bytes(PLAIN)
    with pytest.raises(BadRowError, match=message):
        read_jsonl(tmp_path).compute()


SHAPES = {
    "CR alone": (PLAIN.replace(b"\n", b"\r"), "lines of the file end in only CR; .*tr "),
    "U+2028": (PLAIN.replace(b"\n", "\u2028".encode()), r"another separator \(such as U\+2028\)"),
    "RS": (b"\x1e" + PLAIN.replace(b"\n", b"\n\x1e").removesuffix(b"\x1e"), "a record separator"),
    "array on a line": (b"[" + PLAIN.replace(b"\n", b",", 1).rstrip() + b"]", "the file is a JSON array; .*jq"),
    "array on lines": (b"[\n" + PLAIN.replace(b"\n", b",\n", 1) + b"]\n", "the file is a JSON array; .*jq"),
    "pretty": (b'{\n  "id": 1,\n  "text": "x"\n}\n', "a JSON object that spans several lines; .*jq -c"),
    "pretty objects": (b'{"id": 1,\n "text": "x"}\n{"id": 2,\n "text": "y"}\n', "spans several lines; .*jq -c"),
    "dict": (b"{'id': 1, 'text': 'x'}\n", "the repr of a Python dict"),
    "joined": (PLAIN.replace(b"\n", b" "), "it has several objects, .*jq -c"),
    "NULs": (bytes(4096), "only NUL bytes"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_another_shape_of_json_is_named_with_the_way_out(tmp_path, shape):
    data, message = SHAPES[shape]
    (tmp_path / "a.jsonl").write_bytes(data)
    with pytest.raises(BadRowError, match=rf"line 1 \(byte 0\): .*{message}"):
        read_jsonl(tmp_path).compute()
    (tmp_path / "0.jsonl").write_bytes(PLAIN)
    with pytest.raises(BadRowError, match=rf"a\.jsonl', line 1 \(byte 0\): .*{message}"):
        read_jsonl(tmp_path).compute()
    with pytest.warns(UserWarning, match=message):
        assert len(read_jsonl(tmp_path, on_bad_rows="quarantine").compute()) >= 2


def test_lines_after_the_first_say_nothing_of_the_file():
    assert "the file" not in why_no_row(b"[1]", "a.jsonl", is_first=False)
    assert "byte order mark" in why_no_row(b'\xef\xbb\xbf{"a": 1}', "a.jsonl", is_first=False)
    assert "ends in a comma" in why_no_row(b'{"a": 1},', "a.jsonl", is_first=False)
    assert "it has several objects" in why_no_row(b'{"a": 1}{}', "a.jsonl", is_first=False)
    assert "the object does not end on it" in why_no_row(b'{"a": ', "a.jsonl", is_first=False)
    assert why_no_row(b"null", "a.jsonl", is_first=False) == "it is not one JSON object on one line"


@pytest.mark.parametrize("after", [";", "\x0b", " x", "}", "}}", "]", "[1]", "//c", "\u200b", "\0"])
def test_what_follows_an_object_is_shown(tmp_path, after):
    (tmp_path / "a.jsonl").write_bytes(PLAIN + b'{"id": 3, "text": "z"} ' + after.encode() + b"\n")
    message = r"line 3 .*: other characters follow the object, " + re.escape(repr(after.strip(" ").encode()))
    with pytest.raises(BadRowError, match=message):
        read_jsonl(tmp_path).compute()
    with pytest.warns(UserWarning, match=message):
        assert len(read_jsonl(tmp_path, on_bad_rows="quarantine").compute()) == 2


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "a pointer of Git LFS"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "an HTML page"),
        (b'<?xml version="1.0"?><Error/>', "an XML document"),
        (b"%PDF-1.7\nx\n", "a PDF document"),
        (b"WARC/1.0\r\nWARC-Type: response\r\n", "a web crawl"),
    ],
)
def test_a_text_of_another_format_is_no_table(tmp_path, head, name):
    """Read as CSV, it would be a header and rows without an error."""
    (tmp_path / "a.csv").write_bytes(head)
    with pytest.raises(BadRowError, match=f"byte 0: the file is {name}"):
        read_csv(tmp_path)


def test_a_pointer_of_git_lfs_is_no_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1\n")
    with pytest.raises(BadRowError, match=r"a pointer of Git LFS, not the data .*git lfs pull"):
        read_text_files(tmp_path).compute()


@pytest.mark.parametrize("head", [b"GGUF\3\0\0\0" + bytes(40), b"\x7fELF\2\1\1" + bytes(40), b"\1\0\0\0" * 20])
def test_numbers_are_not_taken_for_text_of_wide_characters(head):
    assert wide_encoding(head) is None


def test_a_text_may_begin_like_a_mark_of_letters(tmp_path):
    assert other_format(b"ORC and elf", "a.txt", kind="text") is None
    (tmp_path / "a.txt").write_bytes(b"BZh, PAR1 and ORC")
    assert read_text_files(tmp_path).compute()["text"].tolist() == ["BZh, PAR1 and ORC"]


@pytest.mark.parametrize(
    "data", [zipped(), tarred(), gzip.compress(b"x"), ROWS.encode("utf-16-le")], ids=["zip", "tar", "gzip", "utf-16"]
)
def test_text_files_that_are_no_text_are_named(tmp_path, data):
    (tmp_path / "a.txt").write_bytes(b"fine")
    (tmp_path / "b.txt").write_bytes(data)
    with pytest.raises(
        BadRowError, match=r"b\.txt', byte 0: the file is (a ZIP|a tar|gzip|UTF-16LE).*on_bad_rows='quarantine'"
    ):
        read_text_files(tmp_path).compute()
    with pytest.warns(UserWarning, match=r"1 bad row was skipped.*b\.txt.*the file is"):
        assert read_text_files(tmp_path, on_bad_rows="quarantine").compute()["text"].tolist() == ["fine"]


@pytest.mark.parametrize("data", [b"", b"\n \r\n\n"])
def test_files_without_rows_are_counted(tmp_path, data):
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(data))
    with pytest.raises(ColumnError, match=r"no columns, .*, because no rows were found in 3 files\. Check the paths"):
        write_jsonl(read_jsonl(tmp_path), tmp_path / "out")
    with pytest.raises(
        ColumnError,
        match=r"columns= has 'text', which is not in the files\. They have no columns, because no rows were found in 3 files\. "
        r"If a column occurs only in later rows, set its type with dtype=, such as",
    ):
        read_jsonl(tmp_path, columns="text")
    empty, table = read_jsonl(tmp_path), pd.DataFrame({"id": [1]})
    for call in (
        lambda: empty.pipe(cdf.keep_where, "score > 1"),
        lambda: empty.pipe(cdf.join, table, on="id"),
        lambda: dd.from_pandas(table, npartitions=1).pipe(cdf.join, empty, on="id"),
        lambda: cdf.explore_thresholds(empty),
    ):
        with pytest.raises(ColumnError, match=r"table has no columns, because no rows were found in 3 files\. Check"):
            call()
    (tmp_path / "a.jsonl").write_bytes(b"{}\n{}\n")
    with pytest.raises(ColumnError, match="the first rows of 3 files are objects without fields"):
        write_jsonl(read_jsonl(tmp_path), tmp_path / "out")


def test_a_name_longer_than_what_is_read_first_is_an_error(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"' + "k" * 1_000_000 + '": 1}\n')
    with pytest.raises(
        SchemaError, match=r"line 1 \(byte 0\): no field of the row .* within the first 1,000,000 bytes.*columns="
    ):
        read_jsonl(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"n": ' + "1" * 1_000_000 + "}\n")
    with pytest.raises(SchemaError, match=r"no field of the row is complete within .* begins b'\{\"n\": 1"):
        read_jsonl(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"' + "k" * 1_000_000 + '": 1}\n')
    (tmp_path / "0.jsonl").write_text('{"id": 1}\n')
    with pytest.raises(
        SchemaError, match=r"the field 'k+\.\.\. \(1,000,000 characters\)' is not among the columns"
    ) as told:
        read_jsonl(tmp_path).compute()
    assert len(str(told.value)) < 1500
    assert read_jsonl(tmp_path, columns="id").compute()["id"].tolist()[0] == 1


@pytest.mark.parametrize("nulls", [2, 3, 40])
def test_nul_bytes_among_the_characters_of_a_line_do_not_make_the_file_utf_32(nulls):
    line = b'{"id": 2, ' + bytes(nulls) + b'"text": "y"}' + bytes(nulls)
    assert "it holds NUL bytes among its characters" in why_no_row(line, "a.jsonl", is_first=False)
    for encoding in ("utf-16-le", "utf-32-le", "utf-32-be"):
        wide = ('{"id": 2, "text": "' + "y" * nulls + '"}').encode(encoding)
        for cut in range(4):
            assert "the file is UTF-" in why_no_row(wide[cut:], "a.jsonl", is_first=False)


OTHERS = {
    "text": (
        PLAIN,
        r"By its content it is text that is not compressed; rename it so that its name does not end in \.{}$",
    ),
    "zip": (zipped(), "By its content it is a ZIP archive .*unzip"),
    "html": (b"<!DOCTYPE html>\n", "By its content it is an HTML page, .*download the file again"),
    "unknown": (b"\x07\x08\xff" * 30, "Download the file again, or leave it out"),
    "short": (b"x", "text that is not compressed"),
    "zero bytes, as a crash leaves": (bytes(100), "Download the file again, or leave it out"),
    "lzma": (lzma.compress(PLAIN, lzma.FORMAT_ALONE), r"By its content it is LZMA data .*xz -dc old\.lzma"),
}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("suffix", ["gz", "gzip", "zst", "zstd", "bz2", "xz"])
def test_a_file_that_is_not_compressed_as_its_name_says_is_named(tmp_path, suffix, kind):
    data, message = OTHERS[kind]
    (tmp_path / f"a.jsonl.{suffix}").write_bytes(data)
    with pytest.raises(
        CorruptFileError, match=r"' is not (gzip|zstd|bzip2|xz) data, though its name says so: it begins b"
    ) as found:
        read_jsonl(tmp_path).compute()
    assert re.search(message.format(suffix), str(found.value))
    assert "damaged" not in str(found.value)


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("suffix", ["gz", "zst", "bz2", "xz"])
def test_a_crawl_that_is_not_compressed_as_its_name_says_is_named(tmp_path, suffix, kind):
    data, message = OTHERS[kind]
    reason = r"the file is not (gzip|zstd|bzip2|xz) data, though its name says so: it begins b"
    if message.startswith("Download"):  # nothing that is known, so the data may only begin with damage
        reason, message = "the compressed data is damaged: ", message.partition(",")[0]
    (tmp_path / f"a.warc.{suffix}").write_bytes(data)
    with pytest.raises(CorruptFileError, match=f"byte 0: {reason}") as found:
        read_warc(tmp_path).compute()
    assert re.search(message.format(suffix).removesuffix("$"), str(found.value))
    with pytest.warns(UserWarning, match=f"1 bad row was skipped, .* {reason}"):
        assert len(read_warc(tmp_path, on_bad_rows="quarantine").compute()) == 0


def test_json_is_not_taken_for_a_crawl(tmp_path):
    (tmp_path / "a.warc").write_bytes(b'{"id": 1}\n')
    with pytest.raises(
        BadRowError, match=r"the file is JSON \(by its first bytes\); read JSON Lines with read_jsonl\. Or"
    ):
        read_warc(tmp_path).compute()


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("a.zip", "Files in .zip are not read: unpack archives (unzip)"),
        ("a.TAR", "Files in .tar are not read: unpack archives (tar -xf)"),
        ("a.tgz", "(tar -xf)"),
        ("a.jsonl.lz4", "Files in .lz4 are not read: compress them with zstd instead (lz4 -dc"),
        ("a.snappy", "compress them with gzip or zstd instead"),
        ("a.csv", "read_csv reads files that end in .csv, .tsv or .tab"),
        ("a.orc", "Files in .orc are not read: convert them to Parquet"),
        ("a.jsonl.part", "wait until their download ends"),
    ],
)
def test_a_folder_with_files_that_no_reader_takes_has_advice(tmp_path, name, advice):
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(InputError, match=re.escape(f"It has {name!r}. ") + ".*" + re.escape(advice)):
        read_jsonl(tmp_path)


@pytest.mark.parametrize("data", [b"", b"\n\n  \n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_a_step_on_an_input_without_rows_says_so(tmp_path, name, data):
    compress = {"gz": gzip.compress, "zst": zstandard.compress}.get(name.rpartition(".")[2], bytes)
    (tmp_path / name).write_bytes(compress(data) if data else data)
    with pytest.raises(
        ColumnError,
        match=r"needs the column 'text', but the table has no columns, because no rows were found in 1 file\. Check",
    ):
        normalize_unicode(read_jsonl(tmp_path))


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.gzip", "a.jsonl.zst", "a.jsonl.BZ2", "a.jsonl.xz"])
@pytest.mark.parametrize("head", [b"\x1f\x8b\x08\x00", b"\x28\xb5\x2f\xfd", b"BZh91AY", b"\xfd7zXZ\x00\x00"])
def test_what_is_compressed_twice_is_not_to_be_renamed(name, head):
    assert "it was compressed twice, so decompress it once" in other_format(head, name)
    assert "rename it so that its name ends in" in other_format(head, "a.jsonl")


NOT_PARQUET = {
    "empty": (b"", "is empty, which a Parquet file never is"),
    "cut after its mark": (b"PAR1", "begins as a Parquet file, but is truncated"),
    "truncated": (
        b"PAR1\x15\x04\x15",
        r"begins as a Parquet file, but is truncated or still being written\. Download it again",
    ),
    "gzip": (gzip.compress(b"PAR1"), r"is not Parquet but gzip data \(by its first bytes\); decompress it first"),
    "zip": (b"PK\x03\x04" + b"x" * 60, r"is not Parquet but a ZIP archive .*unpack it"),
    "page": (b"<!DOCTYPE html><html><body>Not found</body></html>", "is not Parquet but an HTML page"),
    "arrow": (b"ARROW1\0\0" + b"x" * 60, r"is not Parquet but Arrow IPC \(Feather\)"),
    "json": (b'{"text": "a"}\n', "is not Parquet but text. Read JSON Lines with read_jsonl, and CSV with read_csv"),
    "unknown": (b"\xfe\xfd" * 40, r"is not a readable Parquet file: .*[^.]\. Download it again"),
}


@pytest.mark.parametrize("kind", NOT_PARQUET)
def test_another_format_under_the_name_of_parquet_is_named(tmp_path, kind):
    data, message = NOT_PARQUET[kind]
    (tmp_path / "a.parquet").write_bytes(data)
    with pytest.raises(CorruptFileError, match=rf"a\.parquet' {message}"):
        read_parquet(tmp_path)


def test_parquet_under_the_name_of_a_text_file_is_named(tmp_path):
    """A format whose signature has only letters, so that a text may begin with them too: NUL bytes must follow."""
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "a.parquet")
    for name, read in (("a.csv", read_csv), ("a.txt", read_text_files), ("a.warc", read_warc)):
        path = (tmp_path / "a.parquet").rename(tmp_path / name)
        with pytest.raises(BadRowError, match=r"the file is Parquet \(by its first bytes\); read it with read_parquet"):
            read(path).compute()
        path.rename(tmp_path / "a.parquet")


def test_another_format_under_the_name_of_a_crawl_is_named_in_the_quarantine_too(tmp_path):
    (tmp_path / "a.warc").write_bytes(b"PK\x03\x04" + b"x" * 90)
    with pytest.raises(
        BadRowError, match=r"record at byte 0: the file is a ZIP archive .*unpacked files \(unzip\)\. Or quarantine"
    ):
        read_warc(tmp_path).compute()
    with pytest.warns(UserWarning, match="byte 0: the file is a ZIP archive"):
        assert len(read_warc(tmp_path, on_bad_rows="quarantine").compute()) == 0


@pytest.mark.parametrize("good", [b"", b'{"a": "x"}\n'])
@pytest.mark.parametrize("line", [b'{"a": "x\\"\ty"}', b'{\t"a": 1, "b\x01": 2}', b'{"a": ["\x1f"]}'])
def test_a_control_character_in_a_string_is_named(tmp_path, line, good):
    """The parser calls it an invalid encoding. Outside of strings, a tab is legal."""
    (tmp_path / "a.jsonl").write_bytes(good + line + b"\n")
    with pytest.raises(BadRowError, match=r"a string has the control character 0x(09|01|1F), .* as \\u00"):
        read_jsonl(tmp_path).compute()


@pytest.mark.parametrize("row", [r'{"\ud800": 1}', r'{"a": ["x", {"b": "\ud83d \ude00"}]}'])
def test_half_of_a_surrogate_pair_in_each_first_row_is_named(tmp_path, row):
    path = tmp_path / "a.jsonl"
    path.write_text(f"{row}\n")
    with pytest.raises(BadRowError, match=r"line 1 .*half of a surrogate pair, \\ud8(00|3d), which is not a character"):
        read_jsonl(path)
    assert "surrogate" not in why_no_row(rb'{"a": "\ud83d\ude00", b}', "a.jsonl", is_first=True)


def test_the_search_for_a_control_character_takes_no_memory_for_each_character():
    line = b'{"text": "' + b"x" * 3_000_000 + b"\\n" * 1_000
    before = status_bytes("VmHWM")
    assert control_character(line) is None
    assert (
        control_character(line + b"\x01") == "a string has the control character 0x01, which JSON must write as \\u0001"
    )
    assert status_bytes("VmHWM") - before < 30_000_000
