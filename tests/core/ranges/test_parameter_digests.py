# SPDX-License-Identifier: Apache-2.0
"""A run that cannot be resumed says which parameter of which step is another one."""

import dataclasses
import json
import os
import re

import pytest

import curator_df as cdf
from curator_df.core.planning.branches import Branch, identity_of
from curator_df.core.planning.lowering import lower
from curator_df.core.ranges.journal import FORMAT, difference
from curator_df.core.ranges.parameter_digests import printed
from curator_df.files.storage import Folder
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import ParquetFormat

SINK = FileSink(Folder("out"), ParquetFormat("zstd"), 10**6)


@pytest.fixture
def docs(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"id": 1, "text": "a"}\n')
    return cdf.read_jsonl(tmp_path / "in.jsonl")


def is_even(block):
    return block.id % 2 == 0


def is_odd(block):
    return block.id % 2 == 1


def changed(was, now, sink=SINK):
    plan = {"format": FORMAT, **dataclasses.asdict(identity_of(Branch(lower(was), SINK)))}
    return difference(json.loads(json.dumps(plan)), identity_of(Branch(lower(now), sink)))


def test_the_parameter_is_named_with_its_old_and_new_value(docs):
    before = docs.pipe(cdf.sample_rows, 0.5, seed=1)
    after = docs.pipe(cdf.sample_rows, 0.5, seed=2)
    assert changed(before, before) == ""
    assert changed(before, after) == "in step 1 (sample_rows), seed changed from 1 to 2"
    assert "the function is_even" in changed(docs.curate.keep_where(is_even), docs.curate.keep_where(is_odd))
    last = changed(docs.pipe(cdf.drop_exact_duplicates), docs.pipe(cdf.drop_exact_duplicates, keep="last"))
    assert "keep changed from 'first' to 'last'" in last
    assert changed(before, docs.pipe(cdf.normalize_unicode)) == "step 1 changed from sample_rows to normalize_unicode"


def test_a_side_input_that_changed_is_named(docs, tmp_path):
    (tmp_path / "tests.txt").write_text("a text of eight words or so of a test\n")
    (tmp_path / "domains").write_text("a.example\n")
    docs = docs.assign(url="http://a.example")

    def chains():
        return [
            docs.pipe(cdf.drop_contaminated, tmp_path / "tests.txt"),
            docs.pipe(cdf.keep_urls, block_lists=tmp_path),
        ]

    before = chains()
    assert [changed(*pair) for pair in zip(before, chains(), strict=True)] == ["", ""]
    (tmp_path / "tests.txt").write_text("a text of nine  words or so of a test\n")
    (tmp_path / "domains").write_text("b.example\n")
    for was, now, name in zip(before, chains(), ("tests.txt", "domains"), strict=True):
        assert re.search(rf", the file '.*/{name}' changed from content \w{{8}} to content \w{{8}}", changed(was, now))


def test_the_same_of_the_output(docs):
    assert changed(docs, docs, dataclasses.replace(SINK, target_file_bytes=7)) == (
        "the output option target_file_size changed from 1000000 to 7"
    )
    gzip = dataclasses.replace(SINK, format=ParquetFormat("gzip"))
    assert changed(docs, docs, gzip) == "the output option compression changed from 'zstd' to 'gzip'"


def test_a_journal_of_before_there_were_parameters_is_compared_by_fingerprints(docs):
    identity = identity_of(Branch(lower(docs.pipe(cdf.sample_rows, 0.5)), SINK))
    plan = {"format": FORMAT, **dataclasses.asdict(identity)}
    del plan["parameters"], plan["output"]
    assert difference(plan, identity) == ""
    other = identity_of(Branch(lower(docs.pipe(cdf.sample_rows, 0.4)), SINK))
    assert difference(plan, other).endswith("the function or a parameter changed")


def test_nothing_secret_or_long_is_kept():
    found = printed({"api_key": "sk-1", "server": SINK, "words": ["word"] * 1000})
    assert found["api_key"][0] == "not shown"
    assert found["server"][0] == "a FileSink"
    assert len(found["words"][0]) < 100


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda docs, read: docs[docs["id"] > 2], "the steps changed from none to filter"),
        (lambda docs, read: read(on_bad_rows="quarantine"), "on_bad_rows changed from 'raise' to 'quarantine'"),
        (lambda docs, read: read(columns=["id"]), "column 'text' changed from 'large_string' to not set"),
        (
            lambda docs, read: read(dtype={"id": "string"}),
            "column 'id' changed from 'int64' to 'large_string', dtype changed from () to ('id',)",
        ),
        (lambda docs, read: read(add_source=True), "add_source changed from () to ('source_file', 'source_line')"),
    ],
)
def test_what_is_read_otherwise_is_named(tmp_path, docs, change, said):
    now = change(docs, lambda **how: cdf.read_jsonl(tmp_path / "in.jsonl", **how))
    assert changed(docs, now) == said


def test_a_step_of_dask_is_shown_before_and_after(docs):
    said = changed(docs[docs["id"] > 2], docs[docs["id"] > 3])
    assert said == "in step 1 (filter), the step changed from df[df['id'] > 2] to df[df['id'] > 3]"


def test_other_files_are_counted(tmp_path, docs):
    (tmp_path / "more.jsonl").write_text('{"id": 1, "text": "abc"}\n')
    named = "the list of input files (names, sizes, modification times)"
    both = cdf.read_jsonl([tmp_path / "in.jsonl", tmp_path / "more.jsonl"])
    assert changed(docs, both) == f"{named} changed from 1 file, 23 bytes to 2 files, 48 bytes"
    os.utime(tmp_path / "in.jsonl", (1, 1))
    assert changed(docs, cdf.read_jsonl(tmp_path / "in.jsonl")) == f"{named} changed (1 file, 23 bytes)"


def test_readers_of_other_files_name_their_parameters_too(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    text = [cdf.read_text_files(tmp_path / "a.txt", encoding=name) for name in ("utf-8", "latin-1")]
    assert changed(*text) == "encoding changed from 'utf-8' to 'iso8859-1'"
