# SPDX-License-Identifier: Apache-2.0
"""Ids, through whole runs in this process."""

import json

import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.ranges.source import OFFSET_BITS
from tests.core.runner.fake_client import inline_cluster


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


ROWS = 30


@pytest.fixture
def docs(tmp_path):
    return docs_of(tmp_path / "in", files=3)


def docs_of(folder, files, **options):
    folder.mkdir()
    for part in range(files):
        rows = [{"n": n, "text": f"text {n % 4}"} for n in range(part * ROWS // files, (part + 1) * ROWS // files)]
        (folder / f"{part:02d}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return cdf.read_jsonl(str(folder), **options)


def test_addresses_are_file_and_offset_and_increase(docs):
    table = docs.curate.add_ids().compute()
    assert table.id.tolist() == table.index.tolist()
    assert table.id.is_monotonic_increasing
    assert (table.id.to_numpy(dtype="int64") >> OFFSET_BITS).tolist() == [n // 10 for n in range(ROWS)]
    assert str(table.id.dtype) == "Int64"


def test_content_ids_are_those_of_murmur3(docs):
    table = docs.assign(text="a").curate.add_ids(identity="content", into="key").compute()
    # MurmurHash3_x64_128 of "a", seed 0, as published with the algorithm's test vectors.
    assert set(table.key) == {"85555565f6597889e6b53a48510e895a"}
    twice = docs.curate.add_ids(identity="content", subset=["n", "text"]).compute()
    assert twice.id.nunique() == ROWS
    assert docs.curate.add_ids(identity="content").compute().id.nunique() == 4


@pytest.mark.parametrize("files", [1, 3, 30])
@pytest.mark.parametrize("start", [0, 1000])
def test_dense_ids_have_no_gap_whatever_the_files(tmp_path, files, start):
    docs = docs_of(tmp_path / "in", files).curate.keep_where("n % 3 > 0").curate.add_ids(dense=True, start=start)
    table = cdf.checkpoint(docs, tmp_path / "out").compute()
    assert table.n.tolist() == [n for n in range(ROWS) if n % 3]
    assert table.id.tolist() == list(range(start, start + 20))
    assert str(table.id.dtype) == "Int64"


def test_dense_ids_behind_a_drop_and_a_drop_behind_them(docs, tmp_path):
    chain = docs.curate.drop_exact_duplicates().curate.add_ids(dense=True)
    chain = chain.curate.keep_where("id > 0").curate.drop_exact_duplicates(subset="id")
    assert [stage.title for stage in cdf.explain(chain, memory="2GB").stages] == [
        "keys for drop_exact_duplicates, then merge them",
        "rows for add_ids",
        "keys for drop_exact_duplicates, then merge them",
        "write",
    ]
    table = cdf.checkpoint(chain, tmp_path / "out").compute()
    assert table.n.tolist() == [1, 2, 3]
    assert table.id.tolist() == [1, 2, 3]


def test_a_prefix_that_depends_on_time_is_caught(docs, tmp_path):
    (tmp_path / "second").mkdir()

    def some(block, folder=str(tmp_path / "second")):
        import pathlib

        marks = pathlib.Path(folder)
        first = not (marks / str(block.n.iloc[0])).exists()
        (marks / str(block.n.iloc[0])).touch()
        return block[block.n % 5 > 0] if first else block

    chain = docs.map_partitions(some, meta=docs._meta).curate.add_ids(dense=True)
    with pytest.raises(errors.RowCountError, match="before 'add_ids' gave different results"):
        cdf.write_parquet(chain, tmp_path / "out")


def test_pending_numbers_can_be_looked_at(docs):
    numbered = docs.curate.add_ids(dense=True)
    assert numbered.compute()["id"].tolist() == list(range(len(docs)))
    assert numbered.tail(1)["id"].tolist() == [len(docs) - 1]


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"into": "n"}, errors.ColumnError, "overwrite 'n'"),
        ({"identity": "content", "subset": "body"}, errors.ColumnError, "'body'"),
        ({"identity": "url"}, errors.ParameterError, "'address', 'content'"),
        (
            {"identity": "content", "dense": True},
            errors.ParameterError,
            "identity='content' cannot be combined with dense=True, .* Leave one of the two out",
        ),
        ({"dense": True, "start": -1}, errors.ParameterError, "negative"),
        ({"start": 5}, errors.ParameterError, "only with dense=True"),
    ],
)
def test_what_makes_no_sense_is_refused(docs, options, error, said):
    with pytest.raises(error, match=said):
        docs.curate.add_ids(**options)
