# SPDX-License-Identifier: Apache-2.0
"""A step that is not ours must keep the index where something later tells rows apart by it, and only there."""

import json

import pandas as pd
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.planning.branches import Branch, fork
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.program import Step
from curator_df.core.ranges.price import Price
from curator_df.core.tasks.step_runner import require_kept_addresses
from curator_df.files.storage import Folder
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import ParquetFormat
from tests.core.runner.fake_client import inline_cluster

SINK = FileSink(Folder("out"), ParquetFormat("zstd"), 1)


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


@pytest.fixture
def docs(tmp_path):
    rows = ({"text": f"row {i % 90} " * 20, "words": ["a", "b"]} for i in range(200))
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return cdf.read_jsonl(str(tmp_path / "in.jsonl"), blocksize="8kB")


def numbered_anew(block):
    return block.reset_index(drop=True)


def every_second(block):
    return block.iloc[::2]


ADDRESS_USERS = {
    "add_ids": lambda df, path: cdf.write_parquet(cdf.add_ids(df), path),
    "sample_rows": lambda df, path: cdf.write_parquet(cdf.sample_rows(df, 0.5, seed=1), path),
    "drop_exact_duplicates": lambda df, path: cdf.write_parquet(cdf.drop_exact_duplicates(df), path),
    "find_exact_duplicates": lambda df, path: cdf.find_exact_duplicates(df, workdir=path),
    "rejects": lambda df, path: cdf.write_parquet(df, path, rejects=f"{path}-rejects"),
    "shuffle_rows": cdf.shuffle_rows,
}
each_user = pytest.mark.parametrize("user", ADDRESS_USERS)


@each_user
def test_a_step_that_lost_the_index_is_named_where_addresses_are_used_later(docs, tmp_path, user):
    with pytest.raises(
        errors.OperatorError, match=r"(?s)map_partitions\(numbered_anew\)' changed the index.*reset_index.*checkpoint"
    ):
        ADDRESS_USERS[user](docs.map_partitions(numbered_anew), str(tmp_path / "out"))


@each_user
def test_explode_is_refused_before_what_uses_addresses(docs, tmp_path, user):
    with pytest.raises(
        errors.ExpressionError, match=r"rows that explode makes from one row share.*checkpoint\(df, path\)"
    ):
        ADDRESS_USERS[user](docs.explode("words"), str(tmp_path / "out"))


@each_user
def test_a_step_that_takes_rows_away_keeps_their_addresses(docs, tmp_path, user):
    ADDRESS_USERS[user](docs.map_partitions(every_second), str(tmp_path / "out"))


def test_where_nothing_uses_addresses_any_index_will_do(docs, tmp_path):
    for number, table in enumerate((docs.map_partitions(numbered_anew), docs.explode("words"))):
        cdf.write_parquet(cdf.add_ids(table, dense=True), tmp_path / f"{number}")
        ids = pd.concat(pq.read_table(path).to_pandas()["id"] for path in (tmp_path / f"{number}").glob("*.parquet"))
        assert sorted(ids) == list(range(200 * (number + 1)))


def test_steps_after_the_last_use_may_change_the_index(docs):
    chain = cdf.add_ids(docs.map_partitions(every_second)).map_partitions(numbered_anew)
    (branch,) = fork([Branch(lower(chain), SINK)]).branches
    assert [step.addresses_for for step in branch.program.steps] == ["add_ids", "", ""]


def test_a_shared_step_keeps_addresses_for_any_branch(docs):
    base = docs.map_partitions(every_second)
    joined = fork([Branch(lower(base), SINK), Branch(lower(cdf.add_ids(base)), SINK)])
    assert [step.addresses_for for step in joined.stem] == ["add_ids"]


def block_of(addresses, name="address"):
    return pd.DataFrame({"n": 0}, index=pd.Index(addresses, dtype="int64", name=name))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ([3, 5, 9], [3, 9], None),
        ([3, 5, 9], [], None),
        ([3, 3, 9], [3, 3, 9], None),
        ([3, 5, 9], [0, 1, 2], "3 have an index value that is not in the block"),
        ([3, 5, 9], [3, 5, 10], "1 have"),
        ([3, 5, 9], [3, 3, 5, 5, 9, 9], "3 are repeated or reordered"),
        ([3, 5, 9], [9, 5, 3], "2 are repeated or reordered"),
        ([3, 3, 9], [9, 3], "1 are repeated or reordered"),
    ],
)
def test_addresses_are_those_of_the_block_in_order(before, after, said):
    step = Step("mine", None, Price(), addresses_for="add_ids")
    if said is None:
        require_kept_addresses(step, block_of(before), block_of(after))
    else:
        with pytest.raises(errors.OperatorError, match=said):
            require_kept_addresses(step, block_of(before), block_of(after))


def test_numbers_that_look_like_addresses_are_none():
    step = Step("mine", None, Price(), addresses_for="add_ids")
    with pytest.raises(errors.OperatorError, match="a new one"):
        require_kept_addresses(step, block_of([0, 1, 2]), block_of([0, 1], name=None))
