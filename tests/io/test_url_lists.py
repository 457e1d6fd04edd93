# SPDX-License-Identifier: Apache-2.0
"""Files of lists of domains, URLs and expressions: what is read, what is refused, and what workers hold."""

from __future__ import annotations

import bz2
import gzip
import os
import warnings

import numpy as np
import pyarrow as pa
import pytest
import zstandard

from curator_df import errors
from curator_df.io.url_lists import CHUNK_BYTES, LONGEST_LINE_BYTES, find_lists
from curator_df.kernels.urls.listed import HashedLists

pytest.importorskip("tldextract", reason="needs the extra urls")


def found(lists, is_raw=False):
    return find_lists("keep_urls", "block_lists", lists, is_raw, None)


def contains(hashed, *texts):
    return (hashed.find(pa.array(texts, pa.large_string())) >= 0).tolist()


ENTRIES = b"\xef\xbb\xbf# made today\r\n\r\nExample.com\r\n  b.example.  \n*.c.example\n.d.example\n#e.example\nhttp://f.example/\ng.example"
HOSTS = ("example.com", "b.example", "c.example", "d.example", "f.example", "g.example")


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [("", bytes), (".txt", bytes), (".gz", gzip.compress), (".zst", zstandard.compress), (".bz2", bz2.compress)],
)
def test_comments_blank_lines_marks_and_line_ends_do_not_count(tmp_path, suffix, compress):
    path = tmp_path / f"mine{suffix}"
    path.write_bytes(compress(ENTRIES))
    lists = found(path)
    assert lists.names == ("mine",) and lists.entries("domains") == len(HOSTS)
    assert contains(lists.domains(), *HOSTS, "e.example", "", "#e.example") == [True] * len(HOSTS) + [False] * 3


def test_a_folder_has_up_to_three_files(tmp_path):
    for name, kinds in {"adult": ("domains", "urls.gz"), "games": ("expressions",)}.items():
        (tmp_path / name).mkdir()
        for kind in kinds:
            line = b"a.example/x\n" if kind.startswith("urls") else b"a.example\n"
            (tmp_path / name / kind).write_bytes(gzip.compress(line) if kind.endswith(".gz") else line)
    lists = found([tmp_path / "adult", f"{tmp_path}/games/"])
    assert lists.names == ("adult", "games") and lists.expressions == ((1, "a.example"),)
    assert [(file.number, file.kind) for file in lists.files] == [(0, "domains"), (0, "urls"), (1, "expressions")]
    assert [contains(one, "a.example/x", "a.example") for one in lists.urls()] == [[True, False], [False, True]]
    assert found({"one": tmp_path / "adult", "two": tmp_path / "adult/domains"}).names == ("one", "two")
    assert found(tmp_path / "adult/urls.gz").files[0].kind == "urls"
    assert lists.held_bytes == 8 + 16
    with pytest.raises(errors.ParameterError, match="two lists of block_lists= have the name 'adult'"):
        found([tmp_path / "adult", tmp_path / "adult/domains"])


def test_a_missing_list_or_a_folder_of_lists_is_refused(tmp_path):
    (tmp_path / "blacklists/adult").mkdir(parents=True)
    (tmp_path / "blacklists/adult/domains").write_text("a.example\n")
    with pytest.raises(errors.InputError, match=r"block_lists='.*/adlut' does not exist\. .*Did you mean '.*/adult'"):
        found(str(tmp_path / "blacklists/adlut"))
    with pytest.raises(errors.InputError, match=r"is a folder without a file named domains, urls or expressions"):
        found(str(tmp_path / "blacklists"))
    (tmp_path / "blacklists/adult/domains.gz").write_bytes(gzip.compress(b"b.example\n"))
    with pytest.raises(errors.InputError, match=r"has both domains and domains\.gz"):
        found(str(tmp_path / "blacklists/adult"))
    for wrong in (5, [5], {"a": 5}, b"a"):
        with pytest.raises(errors.ParameterError, match=r"block_lists=.* must be a path"):
            found(wrong)


def test_a_list_that_is_a_pipe_or_a_link_that_leads_nowhere_is_refused(tmp_path):
    os.mkfifo(tmp_path / "domains")
    (tmp_path / "loop").symlink_to("loop")
    for path, said in {
        tmp_path: "domains' is a pipe",
        tmp_path / "loop": "cannot access .*levels of symbolic links",
    }.items():
        with pytest.raises(errors.InputError, match=said):
            found(str(path))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            b"a.example\nb\xe9.example\n",
            r"line 2 of '.*list' is not UTF-8 \(byte 0xe9\)\. A list is a text file in UTF-8",
        ),
        ("a.example\n".encode("utf-16"), r"line 1 of '.*list' is not UTF-8 \(byte 0xff\)"),
        ("a.example\n".encode("utf-16-le"), "line 1 of '.*list' has a NUL byte, so it is not a list"),
        (b"PAR1\0\0", "line 1 of '.*list' has a NUL byte"),
        (b"a.example\n" + b"x" * (LONGEST_LINE_BYTES + 1), "line 2 of '.*list' is longer than 8 kB"),
        (b"a\n" + b"x" * (2 * CHUNK_BYTES) + b"\na\n", "line 2 of '.*list' is longer than 8 kB"),
        (
            b"a.example\n0.0.0.0 b.example\n0.0.0.0 c.example\n",
            r"'.*list' is not a list of domains: 2 of 3 lines are not exactly one domain. The first of these lines is line 2: '",
        ),
        (b"x" * (2 * CHUNK_BYTES), "line 1 of '.*list' is longer than 8 kB"),
        (b"<html>\n<body>\n", "is not a list of domains: 2 of 2 lines are not exactly one domain"),
    ],
)
def test_what_is_no_list_is_refused_with_the_line(tmp_path, content, said):
    (tmp_path / "list").write_bytes(content)
    with pytest.raises(errors.BadRowError, match=said):
        found(tmp_path / "list")


def test_a_long_line_across_chunks_is_found_wherever_it_stands(tmp_path):
    line = b"x" * (LONGEST_LINE_BYTES + 1)
    (tmp_path / "list").write_bytes(b"a.example\n" * 3 + line + b"\nb.example\n")
    with pytest.raises(errors.BadRowError, match=r"line 4 of '.*list' is longer than 8 kB"):
        found(tmp_path / "list")


def test_a_few_other_lines_are_ignored_with_a_warning(tmp_path):
    (tmp_path / "list").write_text("a.example\nb.example/page\nc.example\nd e\nf.example\n")
    with pytest.warns(
        UserWarning,
        match=r"list' has 2 lines without a domain, or .*; keep_urls ignores them\. The first is line 2: 'b\.ex",
    ):
        lists = found(tmp_path / "list")
    assert lists.entries("domains") == 3
    assert (
        contains(lists.domains(), "a.example", "c.example", "f.example", "b.example", "e") == [True] * 3 + [False] * 2
    )


def test_an_expression_that_cannot_be_compiled_is_named(tmp_path):
    (tmp_path / "expressions").write_text("[[:alpha:]]+\n\n(unclosed\n")
    with pytest.raises(
        errors.BadRowError, match=r"line 3 of '.*expressions' is not a regular expression of RE2: .*missing \)"
    ):
        found(tmp_path / "expressions")


def test_a_list_without_entries_is_refused_and_a_file_of_a_list_may_be_empty(tmp_path):
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult/domains").write_text("# nothing yet\n")
    with pytest.raises(errors.InputError, match=r"block_lists='.*adult' has no entries"):
        found(str(tmp_path / "adult"))
    (tmp_path / "adult/urls").write_text("a.example/x\n")
    assert contains(found(tmp_path / "adult").urls()[0], "a.example/x") == [True]


@pytest.mark.parametrize("change", [b"b.example\n", b"a.example\nb.example\n", b""])
def test_a_list_that_changes_before_the_work_is_an_error(tmp_path, change):
    (tmp_path / "list").write_bytes(b"a.example\n")
    lists = found(tmp_path / "list")
    (tmp_path / "list").write_bytes(b"# a comment\na.example")
    assert contains(lists.domains(), "a.example") == [True]
    (tmp_path / "list").write_bytes(change)
    with pytest.raises(errors.InputChangedError, match="has changed since keep_urls was called"):
        lists.domains()


def test_lines_are_read_across_chunks(tmp_path):
    names = [f"host-{number}.some-longer-name.example" for number in range(30_000)]
    (tmp_path / "list").write_text("\n".join(names))
    assert (tmp_path / "list").stat().st_size > 4 * CHUNK_BYTES
    hashed = found(tmp_path / "list").domains()
    assert len(hashed.hashes) == len(names) and all(contains(hashed, *names))
    assert hashed.hashes.nbytes == found(tmp_path / "list").held_bytes
    assert not any(contains(hashed, *(f"host-{number}.example" for number in range(30_000))))


def test_raw_entries_are_compared_as_they_are_written(tmp_path):
    (tmp_path / "list").write_text("Example.COM\nnot a domain\n")
    with warnings.catch_warnings(action="error"):
        hashed = found(tmp_path / "list", is_raw=True).domains()
    assert contains(hashed, "Example.COM", "not a domain", "example.com") == [True, True, False]


def test_the_first_list_with_an_entry_is_named_and_lists_may_be_empty():
    some = [[], [pa.array(["a", "b", "b"])], [pa.array(["b"]), pa.array(["c"])], []]
    hashed = HashedLists.of(some, 5)
    assert hashed.find(pa.array(["a", "b", "c", "d"])).tolist() == [1, 1, 2, -1]
    assert np.all(np.diff(hashed.hashes[:3].astype(object)) >= 0)
    assert HashedLists.of([[]], 0).find(pa.array(["a"])).tolist() == [-1]
