# SPDX-License-Identifier: Apache-2.0
"""What several chains have in common, and what writing all of them at once is projected to need."""

import json

import pytest

import curator_df as cdf
from curator_df.core.planning.branches import Branch, fork
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.plan import plan_fork, plan_stream
from curator_df.core.planning.price import task_factor
from curator_df.errors import BudgetError, ExpressionError
from curator_df.files.storage import Folder
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import ParquetFormat
from curator_df.memory.budget import choose_layout
from curator_df.memory.sizes import read_size

PARQUET = ParquetFormat("zstd")


def is_even(block):
    return block.id % 2 == 0


def is_short(block):
    return block.text.str.len() < 10


@pytest.fixture
def docs(tmp_path):
    (tmp_path / "in.jsonl").write_text(json.dumps({"id": 1, "text": "one", "lang": "en"}) + "\n")
    return cdf.read_jsonl(tmp_path / "in.jsonl")


def branch_of(df, name="out", *, rejects=False):
    sink = FileSink(Folder(name), PARQUET, 1)
    return Branch(lower(df), sink, FileSink(Folder(f"{name}-rejects"), PARQUET, 1) if rejects else None)


def joined(*tables, **options):
    return fork([branch_of(df, f"out{number}", **options) for number, df in enumerate(tables)])


def names(steps):
    return [step.name for step in steps]


def test_equal_steps_at_the_beginning_are_shared(docs):
    base = docs.curate.normalize_unicode().curate.keep_where(is_even)
    found = joined(base.curate.keep_where(is_short), base, base[["id"]].curate.keep_where(is_even))
    assert names(found.stem) == ["normalize_unicode", "keep_where"]
    assert [names(found.own_steps(branch)) for branch in found.branches] == [
        ["keep_where"],
        [],
        ["columns", "keep_where"],
    ]


def test_a_step_that_differs_ends_what_is_shared_even_if_equal_ones_follow(docs):
    found = joined(
        docs.curate.keep_where(is_even).curate.normalize_unicode(),
        docs.curate.keep_where(is_short).curate.normalize_unicode(),
    )
    assert found.shared == 0


def test_steps_count_as_equal_by_what_they_do_not_by_which_object_they_are(docs):
    def chain():
        return docs.curate.keep_where(lambda block: block.id > 3).curate.normalize_unicode(form="NFKC")

    assert joined(chain(), chain()).shared == 2


def test_a_pending_drop_is_shared_too(docs):
    base = docs.curate.drop_exact_duplicates()
    assert names(joined(base, base.curate.keep_where(is_even)).stem) == ["drop_exact_duplicates"]


def test_only_columns_that_some_branch_needs_are_read(docs):
    found = joined(docs[["text"]], docs[["text", "id"]])
    assert list(found.source.meta.columns) == ["id", "text"]
    assert [list(branch.program.source.meta.columns) for branch in found.branches] == [["text"], ["text", "id"]]


def test_the_same_step_on_other_columns_is_not_shared(docs):
    # dropna looks at every column there is, so the two do not keep the same rows.
    assert joined(docs[["id"]].dropna(), docs[["id", "text"]].dropna()).shared == 0


def test_tables_of_different_reads_are_refused_by_name(docs, tmp_path):
    (tmp_path / "other.jsonl").write_text('{"id": 1, "text": "one", "lang": "en"}\n')
    with pytest.raises(ExpressionError, match=r"(?s)out0 and .*out1.*in\.jsonl.*other\.jsonl.*one after the other"):
        joined(docs, cdf.read_jsonl(tmp_path / "other.jsonl"))


def test_the_same_files_read_twice_are_one_input(docs, tmp_path):
    assert joined(docs, cdf.read_jsonl(tmp_path / "in.jsonl").curate.keep_where(is_even)).shared == 0


def test_the_smallest_block_that_was_named_is_taken(tmp_path, docs):
    small, large = (cdf.read_jsonl(tmp_path / "in.jsonl", blocksize=size) for size in ("2MB", "4MB"))
    assert joined(small, docs, large).explicit_block_bytes == 2_000_000


def test_one_branch_is_projected_like_a_chain_of_its_own(docs):
    df = docs.curate.normalize_unicode()
    # max(reader 3.1, 1 + step 1.4, 1 + writer 1.5) + a waiting block + slack
    assert task_factor(joined(df)) == pytest.approx(3.1 + 1 + 0.5)
    layout = choose_layout(2_000_000_000, cpus=2)
    assert (
        plan_fork(joined(df), layout).projected_bytes
        == plan_stream(lower(df), FileSink(Folder("."), PARQUET, 1), None, layout).projected_bytes
    )


def test_all_writers_wait_at_once_and_the_shared_block_stays(docs):
    base = docs.curate.normalize_unicode()
    split = joined(base.curate.keep_where(is_even), base.curate.keep_where(is_short), rejects=True)
    # max(reader 3.1, shared block + branch's block + writer 1.5) + 2 x (waiting + waiting rejects) + slack
    assert task_factor(split) == pytest.approx(1 + 1 + 1.5 + 4 + 0.5)


def test_many_outputs_that_do_not_fit_are_refused_with_what_would(docs):
    many = joined(*[docs.curate.keep_where(f"id > {number}") for number in range(60)])
    with pytest.raises(BudgetError, match=r"or write fewer than 60 outputs in one run") as refused:
        plan_fork(many, choose_layout(450_000_000, cpus=1))
    enough = read_size("memory", str(refused.value).split("memory=")[1].split(",")[0].strip("'"))
    plan = plan_fork(many, choose_layout(enough, cpus=1))
    assert plan.projected_bytes <= enough
