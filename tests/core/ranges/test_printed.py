# SPDX-License-Identifier: Apache-2.0
"""A run that cannot be resumed says which parameter of which step is another one."""

import dataclasses
import json

import pytest

import curator_df as cdf
from curator_df.core.files.storage import Folder
from curator_df.core.planning.branches import Branch, identity_of
from curator_df.core.planning.program import lower
from curator_df.core.ranges.journal import difference
from curator_df.core.ranges.printed import printed
from curator_df.io.output import FileSink
from curator_df.io.write import ParquetFormat

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
    plan = {"format": 2, **dataclasses.asdict(identity_of(Branch(lower(was), SINK)))}
    return difference(json.loads(json.dumps(plan)), identity_of(Branch(lower(now), sink)))


def test_the_parameter_is_named_with_its_old_and_new_value(docs):
    before = docs.pipe(cdf.sample_rows, fraction=0.5, seed=1)
    after = docs.pipe(cdf.sample_rows, fraction=0.5, seed=2)
    assert changed(before, before) == ""
    assert changed(before, after) == "step 1 is 'sample_rows', as it was, but seed was 1 and is 2"
    assert "the function is_even" in changed(docs.curate.keep_where(is_even), docs.curate.keep_where(is_odd))
    last = changed(docs.pipe(cdf.drop_exact_duplicates), docs.pipe(cdf.drop_exact_duplicates, keep="last"))
    assert "keep was 'first' and is 'last'" in last
    assert changed(before, docs.pipe(cdf.normalize_unicode)).startswith("step 1 was 'sample_rows' and is")


def test_the_same_of_the_output(docs):
    assert changed(docs, docs, dataclasses.replace(SINK, target_file_bytes=7)) == (
        "of the output target_file_bytes was 1000000 and is 7"
    )
    gzip = dataclasses.replace(SINK, format=ParquetFormat("gzip"))
    assert changed(docs, docs, gzip) == "of the output compression was 'zstd' and is 'gzip'"


def test_a_journal_of_before_there_were_parameters_is_compared_by_fingerprints(docs):
    identity = identity_of(Branch(lower(docs.pipe(cdf.sample_rows, fraction=0.5)), SINK))
    plan = {"format": 2, **dataclasses.asdict(identity)}
    del plan["parameters"], plan["output"]
    assert difference(plan, identity) == ""
    other = identity_of(Branch(lower(docs.pipe(cdf.sample_rows, fraction=0.4)), SINK))
    assert difference(plan, other).endswith("its function or a parameter changed")


def test_nothing_secret_or_long_is_kept():
    found = printed({"api_key": "sk-1", "server": SINK, "words": ["word"] * 1000})
    assert found["api_key"][0] == "not shown"
    assert found["server"][0] == "a FileSink"
    assert len(found["words"][0]) < 100
