# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import pickle
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import curator_df as cdf
from curator_df.errors import InputError, MissingExtraError, ParameterError, RemoteFileError
from curator_df.files import retry as transient
from curator_df.files import storage
from curator_df.io.listing import list_files
from curator_df.receipts.saved_documents import save_text


def write(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def found(folder, *args, **kwargs):
    return [os.path.relpath(path, folder) for path in list_files(*args, **kwargs).paths]


def test_a_directory_is_walked_whole_sorted_and_without_hidden_names(tmp_path):
    write(tmp_path, "b.jsonl", "a/z.jsonl", "a/a.txt", ".x.jsonl", "_tmp/c.jsonl", "_x.jsonl", "a-b/q.JSONL")
    assert found(tmp_path, tmp_path, suffixes=(".jsonl",)) == ["a-b/q.JSONL", "a/z.jsonl", "b.jsonl"]


def test_hidden_names_are_read_when_they_are_named(tmp_path):
    write(tmp_path, "_x/a", ".y")
    assert found(tmp_path, [tmp_path / "_x", tmp_path / ".y"]) == ["_x/a", ".y"]
    assert found(tmp_path, f"{tmp_path}/_*/*") == ["_x/a"]
    assert found(tmp_path, f"{tmp_path}/.*") == [".y"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.jsonl", ["a1.jsonl", "a2.jsonl", "b1.jsonl"]),
        ("a?.jsonl", ["a1.jsonl", "a2.jsonl"]),
        ("[!a]1.jsonl", ["b1.jsonl"]),
        ("**/*.jsonl", ["a1.jsonl", "a2.jsonl", "b1.jsonl", "d/e/f.jsonl"]),
        ("d/**", ["d/e/f.jsonl"]),
        ("d*", ["d/e/f.jsonl"]),
        ("**/e/*", ["d/e/f.jsonl"]),
    ],
)
def test_globs(tmp_path, pattern, expected):
    write(tmp_path, "a1.jsonl", "a2.jsonl", "b1.jsonl", "d/e/f.jsonl")
    assert found(tmp_path, f"{tmp_path}/{pattern}") == expected


@pytest.mark.parametrize(
    "name", ["a[1].jsonl", "what?.jsonl", "st*r.jsonl", "with space", "two\nlines", "ü漢😀", "a%20b", "#x", "s3:"]
)
def test_a_name_that_exists_wins_over_the_glob_it_looks_like(tmp_path, name):
    write(tmp_path, name, "a1.jsonl", "whatx.jsonl", "star.jsonl")
    assert found(tmp_path, tmp_path / name) == [name]


def test_a_directory_with_brackets_in_its_name_can_hold_a_glob(tmp_path):
    write(tmp_path, "run [1]/a.jsonl", "run 1/b.jsonl")
    assert found(tmp_path, f"{tmp_path}/run [1]/*.jsonl") == ["run [1]/a.jsonl"]


def test_a_name_that_is_not_utf8_is_read(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    with open(path, "w"):
        pass
    assert list_files(tmp_path).paths == (path,)


def test_loops_of_symlinks_end(tmp_path):
    write(tmp_path, "d/a.jsonl")
    (tmp_path / "d" / "up").symlink_to(tmp_path)
    (tmp_path / "d" / "self").symlink_to(tmp_path / "d")
    assert found(tmp_path, tmp_path) == ["d/a.jsonl"]
    assert found(tmp_path, f"{tmp_path}/**/*.jsonl") == ["d/a.jsonl"]


def test_symlinks_to_files_and_directories_are_followed(tmp_path):
    write(tmp_path, "else/a", "else/b")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "dir").symlink_to(tmp_path / "else")
    (tmp_path / "in" / "file").symlink_to(tmp_path / "else" / "b")
    assert found(tmp_path, tmp_path / "in") == ["in/dir/a", "in/dir/b", "in/file"]


def test_entries_keep_their_order_and_a_file_counts_once(tmp_path):
    write(tmp_path, "a", "b", "c")
    assert found(tmp_path, [tmp_path / "c", tmp_path, f"{tmp_path}/*"]) == ["c", "a", "b"]


def test_sizes_and_stamps(tmp_path):
    write(tmp_path, "abc")
    os.utime(tmp_path / "abc", ns=(5, 7))
    listing = list_files(tmp_path / "abc")
    assert (listing.sizes.tolist(), listing.stamps.tolist(), listing.total_bytes) == ([3], [7], 3)


def test_the_fingerprint_follows_size_and_time(tmp_path):
    write(tmp_path, "a")
    before = list_files(tmp_path).fingerprint
    assert list_files(tmp_path).fingerprint == before
    os.utime(tmp_path / "a", ns=(5, 7))
    assert list_files(tmp_path).fingerprint != before


@pytest.mark.parametrize("entry", ["nothing.jsonl", "no*.jsonl", "deep/er/x"])
def test_what_matches_nothing_is_named_with_what_is_there(tmp_path, entry):
    write(tmp_path, *"abcdefghij")
    message = re.escape(f"; {str(tmp_path)!r} has 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h' and 2 more")
    with pytest.raises(InputError, match=message):
        list_files([tmp_path / "a", tmp_path / entry])


def test_a_directory_without_the_suffix_is_an_error(tmp_path):
    write(tmp_path, "a.txt")
    with pytest.raises(InputError, match=r"no file that ends in \.jsonl\. It has 'a\.txt'"):
        list_files(tmp_path, suffixes=(".jsonl",))


@pytest.mark.parametrize(
    "paths", [[], {}, "", [""], 5, True, None, b"a", [None], ["a", b"b"], "a\0b", ["a\0b"], "\ud800"]
)
def test_what_is_no_path_is_refused(paths):
    with pytest.raises(ParameterError, match=r"^paths( is empty|=.* is not a path| has .* is not a path)"):
        list_files(paths)


def test_an_output_whose_path_no_file_system_can_have_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    for call in (cdf.write_parquet, cdf.checkpoint):
        with pytest.raises(ParameterError, match="is not a valid output folder"):
            call(cdf.read_jsonl(tmp_path), f"{tmp_path}/\ud800")


@pytest.mark.parametrize("pattern", ["", "/*.jsonl", "/**/*.jsonl", "/*/*.jsonl", "/d/*", "/**/*"])
@pytest.mark.parametrize(
    ("name", "target", "said"),
    [
        ("loop.jsonl", "loop.jsonl", "leads back to it or nowhere"),
        ("nowhere.jsonl", "/nothing/there", "does not exist"),
        ("nowhere.JSONL", "nothing", "does not exist"),
    ],
)
def test_a_link_that_leads_nowhere_is_an_error_and_no_missing_file(tmp_path, pattern, name, target, said):
    write(tmp_path, "a.jsonl", "d/b.jsonl")
    for folder in (tmp_path, tmp_path / "d"):
        (folder / name).symlink_to(target)
    if name.endswith(".JSONL") and pattern.endswith(".jsonl"):
        assert found(tmp_path, f"{tmp_path}{pattern}", suffixes=(".jsonl",))
        return
    with pytest.raises(
        InputError, match=rf"{name}' is a link to '{target}', which {said}, so this part of the input is"
    ):
        list_files(f"{tmp_path}{pattern}", suffixes=(".jsonl",))


@pytest.mark.parametrize("pattern", ["", "/**/*.jsonl", "/*/*.jsonl"])
def test_a_link_to_a_directory_that_is_gone_is_an_error(tmp_path, pattern):
    write(tmp_path, "d/a.jsonl")
    for name in ("shard", "v1.0"):
        (tmp_path / name).symlink_to("/mnt/gone")
        with pytest.raises(InputError, match=f"{name}' is a link to '/mnt/gone', which does not exist"):
            list_files(f"{tmp_path}{pattern}", suffixes=(".jsonl",))
        (tmp_path / name).unlink()


def test_a_link_that_leads_nowhere_and_is_no_part_of_the_input_does_not_matter(tmp_path):
    write(tmp_path, "a.jsonl", "d/b.jsonl")
    for name in ("notes.txt", "_hidden", ".#a.jsonl", "d/.lock"):
        (tmp_path / name).symlink_to("nothing")
    for pattern in ("", "/**/*.jsonl", "/*.jsonl"):
        assert "a.jsonl" in found(tmp_path, f"{tmp_path}{pattern}", suffixes=(".jsonl",))


def test_what_is_no_file_is_named_for_what_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nowhere").symlink_to("nothing")
    os.mkfifo(tmp_path / "pipe.jsonl")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        for entry, message in {
            "loop": "cannot access .*loop': Too many levels of symbolic links",
            "nowhere": "is a link to 'nothing', which does not exist",
            "pipe.jsonl": r"pipe\.jsonl' is a pipe, which can be read only once, .* Write it to a file first",
            "socket": "socket' is a socket",
            "/dev/null": "'/dev/null' is a device",
            "-": "standard input can be read only once",
        }.items():
            with pytest.raises(InputError, match=message):
                list_files(entry)
    write(tmp_path, "a.jsonl")
    (tmp_path / "loop").unlink()
    (tmp_path / "nowhere").unlink()
    (tmp_path / "pipe.jsonl").unlink()
    assert found(tmp_path, tmp_path, suffixes=(".jsonl",)) == ["a.jsonl"]


@pytest.mark.parametrize("entry", ["", "*", "*.jsonl", "**/*.jsonl", "../in*"])
def test_a_pipe_a_socket_or_a_device_among_files_is_an_error(tmp_path, monkeypatch, entry):
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path / "in")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("b.jsonl")
    os.mkfifo("pipe")
    for make, said in (
        (lambda: None, "b.jsonl' is a socket"),
        (lambda: os.mkfifo("b.jsonl"), "b.jsonl' is a pipe"),
        (lambda: os.symlink("pipe", "b.jsonl"), "b.jsonl' is a pipe"),
        (lambda: os.symlink("/dev/null", "b.jsonl"), "b.jsonl' is a device"),
    ):
        make()
        write(tmp_path / "in", "a.jsonl")
        with pytest.raises(InputError, match=said):
            list_files(f"{tmp_path}/in/{entry}", suffixes=(".jsonl",))
        Path("b.jsonl").unlink()
    if entry != "*":
        assert found(tmp_path, f"{tmp_path}/in/{entry}", suffixes=(".jsonl",)) == ["in/a.jsonl"]


def test_a_directory_that_may_be_listed_but_not_entered_is_an_error_that_says_so():
    folder = Path(tempfile.mkdtemp())
    try:
        folder.chmod(0o755)
        write(folder, "in/a.jsonl", "in/d/b.jsonl")
        for below in ("in/d", "in"):
            (folder / below).chmod(0o644)
            with as_nobody():
                for entry in (folder / "in", folder / "in/a.jsonl", f"{folder}/in/*.jsonl", f"{folder}/**/*.jsonl"):
                    if below == "in" or "/in/" not in str(entry):
                        with pytest.raises(InputError, match=r"cannot (access|list) .*[Pp]ermission denied.*"):
                            list_files(entry)
        (folder / "in").chmod(0o755)
        (folder / "in/d").chmod(0o755)
    finally:
        (folder / "in").chmod(0o755)
        shutil.rmtree(folder)


def test_what_may_not_be_read_is_named_for_a_missing_file_and_a_receipt():
    folder = Path(tempfile.mkdtemp())
    try:
        folder.chmod(0o711)
        (folder / "out/_curator").mkdir(parents=True)
        (folder / "out/_curator").chmod(0o700)
        with as_nobody():
            with pytest.raises(InputError, match=r"missing\.jsonl' does not exist; '.*' cannot be listed"):
                list_files(folder / "missing.jsonl")
            for read in (cdf.read_receipt, cdf.describe_exact_duplicates):
                with pytest.raises(InputError, match=r"out cannot be read: Permission denied\. Its owner"):
                    read(folder / "out")
            with pytest.raises(InputError, match=r"_curator cannot be read: Permission denied\. Its owner"):
                cdf.open_index(folder / "out/_curator")
            for write in (lambda: save_text(folder / "receipt.html", "page"), lambda: cdf.open_index(folder / "new")):
                with pytest.raises(ParameterError, match="cannot be written to: Permission denied"):
                    write()
        (folder / "loop").symlink_to("loop")
        with pytest.raises(InputError, match="loop cannot be read: Too many levels of symbolic links"):
            cdf.read_receipt(folder / "loop")
        for read in (cdf.read_receipt, cdf.open_index, cdf.describe_exact_duplicates):
            with pytest.raises(InputError, match=r"aaa cannot be read: File name too long\. Correct the path"):
                read(folder / ("a" * 300))
    finally:
        shutil.rmtree(folder)


def test_a_document_with_a_path_that_is_not_utf8_is_saved(tmp_path):
    save_text(tmp_path / "receipt.html", b"written to caf\xe9".decode("utf-8", "surrogateescape"))
    assert (tmp_path / "receipt.html").read_text() == r"written to caf\xe9"


@contextlib.contextmanager
def as_nobody():
    """Look at files as a user who is not root, before whom no permission counts."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_names_survive_a_file_system_encoding_of_ascii(tmp_path):
    for name in (b"caf\xe9.jsonl", "é.jsonl".encode()):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text('{"id": 1}\n')
    script = (
        "import sys, curator_df as cdf; assert sys.getfilesystemencoding() == 'ascii'\n"
        "rows = cdf.read_jsonl(sys.argv[1], add_source=True).compute(scheduler='sync')\n"
        "print(len(rows), [ascii(path.rpartition('/')[2]) for path in rows['source_file']])"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-c", script, tmp_path], env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    names = [ascii("caf\\xe9.jsonl"), ascii("é.jsonl")]
    assert done.stdout.decode().strip() == f"2 {names}"


def test_relative_paths_become_absolute(tmp_path, monkeypatch):
    write(tmp_path, "a")
    monkeypatch.chdir(tmp_path)
    assert list_files("a").paths == (str(tmp_path / "a"),)
    assert list_files("file://" + str(tmp_path / "a")).paths == (str(tmp_path / "a"),)


@pytest.fixture
def memory():
    system = fsspec.filesystem("memory")
    system.store.clear()
    for name in ("/data/b.jsonl", "/data/sub/a.jsonl", "/data/_x/c.jsonl", "/data/[1].jsonl"):
        system.pipe_file(name, name.encode())
    yield system
    system.store.clear()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("memory://data", ["/data/[1].jsonl", "/data/b.jsonl", "/data/sub/a.jsonl"]),
        ("memory://data/**/*.jsonl", ["/data/[1].jsonl", "/data/b.jsonl", "/data/sub/a.jsonl"]),
        ("memory://data/*.jsonl", ["/data/[1].jsonl", "/data/b.jsonl"]),
        ("memory://data/[1].jsonl", ["/data/[1].jsonl"]),
        ("memory://data/_x/c.jsonl", ["/data/_x/c.jsonl"]),
    ],
)
def test_urls(memory, url, expected):
    listing = list_files(url)
    assert [path.removeprefix("memory://") for path in listing.paths] == expected
    assert listing.sizes.tolist() == [len(name) for name in expected]


def test_a_url_that_matches_nothing_is_an_error(memory):
    with pytest.raises(InputError, match=r"nothing matches 'memory://data/none.*has.*b\.jsonl"):
        list_files("memory://data/none*")
    with pytest.raises(ParameterError, match=r"'nosuch://x' cannot be used: .*nosuch"):
        list_files("nosuch://x")


@pytest.mark.parametrize(
    ("failure", "kind", "said"),
    [
        (
            ImportError("Install s3fs to access S3"),
            MissingExtraError,
            r"\(Install s3fs to access S3\)\. Install it with: .*pip.* s3fs$",
        ),
        (ConnectionRefusedError(111, "refused"), RemoteFileError, "cannot be opened: .*refused. Check the address"),
        (OSError("Unable to load libjvm\ndlopen failed"), RemoteFileError, "Unable to load libjvm. Check the address"),
        (
            TypeError("unexpected keyword argument 'token'"),
            ParameterError,
            "cannot be used: unexpected keyword argument",
        ),
    ],
)
def test_a_file_system_that_cannot_be_opened_is_an_error_with_the_way_out(monkeypatch, failure, kind, said):
    def opened(url, **options):
        raise failure

    monkeypatch.setattr(storage.fsspec.core, "url_to_fs", opened)
    for call in (lambda: list_files("s3://b/k"), storage.Folder("s3://b/k").names):
        with pytest.raises(kind, match=rf"^'s3://b/k' .*{said}"):
            call()


@pytest.mark.parametrize("entry", ["", "*.[jJ]*", "??JSON*", "[ab].*"])
@pytest.mark.parametrize("name", ["a.jsonl", "b.JSONL.gz"])
def test_a_pipe_in_a_folder_is_named(tmp_path, name, entry):
    os.mkfifo(tmp_path / name)
    (tmp_path / "other").mkdir()
    said = (
        f"{name}' is a pipe, which can be read only once" if entry[:2] != "??" or "JSON" in name else "nothing matches"
    )
    with pytest.raises(InputError, match=said):
        list_files(tmp_path / entry, suffixes=(".jsonl", ".jsonl.gz"))


def test_many_files_pickle_small(tmp_path):
    for number in range(2000):
        (tmp_path / f"shard-{number:05d}.jsonl").touch()
    listing = list_files(tmp_path)
    data = pickle.dumps(listing)
    assert len(data) < 60_000
    assert pickle.loads(data).paths == listing.paths


class Elsewhere(MemoryFileSystem):
    """A store whose client raises what it likes."""

    protocol = "elsewhere"
    error: Exception = RuntimeError("no such bucket <x>")

    def info(self, path, **_):
        raise self.error

    def isdir(self, path):
        raise self.error

    def glob(self, path, **_):
        raise self.error


class TransportError(Exception):
    """Named like that of httpx, which huggingface_hub raises without a network."""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            RuntimeError("no such bucket <x>"),
            r"RuntimeError: no such bucket <x>\. Check the address, the network and the",
        ),
        (
            TransportError("Name or service not known"),
            r"TransportError: Name or service not known \(tried 6 times.*name of the server cannot be looked up: check the net",
        ),
        (
            TransportError("reset by peer"),
            r"TransportError: reset by peer \(tried 6 times.*The store is busy or cannot be rea",
        ),
    ],
)
def test_what_the_client_of_a_store_raises_is_an_error_of_ours(monkeypatch, error, said):
    fsspec.register_implementation("elsewhere", Elsewhere, clobber=True)
    monkeypatch.setattr(Elsewhere, "error", error)
    monkeypatch.setattr(transient.time, "sleep", lambda _: None)
    with pytest.raises(RemoteFileError, match=rf"cannot list 'elsewhere://a/\*\.parquet': {said}"):
        list_files("elsewhere://a/*.parquet")


def test_the_error_of_a_directory_names_the_readers_of_what_is_there(tmp_path):
    (tmp_path / "below").mkdir()
    for name in ("below/a.warc.gz", "b.PARQUET", "c.xyz"):
        (tmp_path / name).write_bytes(b"")
    said = r"read_parquet reads files that end in \.parquet, \.parq or \.pq\. read_warc reads files that end in \.warc or \.wet$"
    with pytest.raises(InputError, match=said):
        list_files(tmp_path, suffixes=[".jsonl"])
    fsspec.filesystem("memory").pipe("/readers/a.wet.zst", b"")
    with pytest.raises(InputError, match=r"read_warc reads files"):
        list_files("memory://readers", suffixes=[".jsonl"])


@pytest.mark.parametrize("name", ["a.arc", "a.arc.gz", "below/A.ARC.GZ"])
def test_the_error_of_a_directory_of_arc_files_says_how_to_convert_them(tmp_path, name):
    (tmp_path / "below").mkdir()
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(InputError, match=r"ARC files have no reader: convert them to WARC \(warcio recompress"):
        list_files(tmp_path, suffixes=[".warc", ".warc.gz"])


def test_the_suffixes_of_readers_are_those_in_errors():
    from curator_df.io import text_files
    from curator_df.io.csv import reader as csv
    from curator_df.io.formats import COMPRESSED_SUFFIXES
    from curator_df.io.jsonl import reader as jsonl
    from curator_df.io.listing import READERS
    from curator_df.io.parquet import reader as parquet
    from curator_df.io.warc import reader as warc

    plain = {
        name: tuple(suffix for suffix in suffixes if not suffix.endswith(COMPRESSED_SUFFIXES))
        for name, suffixes in (
            ("read_csv", csv.SUFFIXES),
            ("read_jsonl", jsonl.SUFFIXES),
            ("read_parquet", parquet.SUFFIXES),
            ("read_text_files", text_files.SUFFIXES),
            ("read_warc", warc.SUFFIXES),
        )
    }
    assert plain == READERS


@pytest.mark.parametrize("key", ["blob_id", "sha", "content_hash", "md5Checksum", "etag"])
def test_a_store_that_names_the_content_of_a_file_is_asked_for_that_and_not_for_the_time(monkeypatch, key):
    marks = {"content": "one", "time": 1}

    class Store(MemoryFileSystem):
        protocol = "marked"
        root_marker = ""

        def _marked(self, entry):
            return {**entry, key: marks["content"], "mtime": marks["time"], "last_modified": marks["time"]}

        def info(self, path, **options):
            return self._marked(super().info(path, **options))

        def find(self, path, detail=False, **options):
            found = super().find(path, detail=True, **options)
            return {name: self._marked(entry) for name, entry in found.items()} if detail else list(found)

        def ls(self, path, detail=True, **options):
            entries = super().ls(path, detail=True, **options)
            return [self._marked(entry) for entry in entries] if detail else [entry["name"] for entry in entries]

    fsspec.register_implementation("marked", Store, clobber=True)
    fsspec.filesystem("marked").pipe("marked://marked-data/a.jsonl", b"{}")
    for url in ("marked://marked-data", "marked://marked-data/a.jsonl", "marked://marked-data/*.jsonl"):
        first = list_files(url).fingerprint
        marks["time"] += 1
        assert list_files(url).fingerprint == first
        marks["content"] += "!"
        assert list_files(url).fingerprint != first


def test_the_system_is_asked_twice_about_each_file_of_a_pattern(tmp_path, monkeypatch):
    for number in range(20):
        (tmp_path / f"{number}.jsonl").write_text("{}\n")
    asked, ask = [], os.stat
    monkeypatch.setattr(os, "stat", lambda path, **options: asked.append(path) or ask(path, **options))
    assert len(list_files(str(tmp_path / "*.jsonl"), suffixes=(".jsonl",)).paths) == 20
    assert sum(str(path).endswith(".jsonl") and "*" not in str(path) for path in asked) == 2 * 20
