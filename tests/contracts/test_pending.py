# SPDX-License-Identifier: Apache-2.0
"""Every deferred step refuses to be computed block by block, and looks and runs do the same to each row, however cut."""

from __future__ import annotations

import itertools
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df.core.ranges import deferred_step
from curator_df.core.runner import run as run_module
from curator_df.core.runner.events import StageStarted
from curator_df.errors import PendingError
from tests.contracts.operator_cases import (
    PENDING,
    SAME_ROWS,
    SUBSET,
    computed,
    require_documented_rejects,
    table,
)
from tests.contracts.operator_rows import ROWS
from tests.core.runner.fake_client import inline_cluster

CUTS = {
    "1 file": (),
    "3 files": (4, 9),
    "a row a file": range(1, len(ROWS)),
    "one file empty": (4, 4, 9),
}

each_pending = pytest.mark.parametrize("case", PENDING, ids=str)


def each_pending_with_one(names, choices):
    """Return a decorator for all cases, each with one of these choices in turn; the first item of a choice names it."""
    pairs = [(case, choices[number % len(choices)]) for number, case in enumerate(PENDING)]
    return pytest.mark.parametrize(
        ("case", *names), [pytest.param(case, *choice[1:], id=f"{case}-{choice[0]}") for case, choice in pairs]
    )


each_drop = pytest.mark.parametrize("case", [c for c in PENDING if c.operator.startswith(SUBSET)], ids=str)
each_same_rows = pytest.mark.parametrize("case", [c for c in PENDING if c.operator.startswith(SAME_ROWS)], ids=str)


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="4GB", cpus=2) as running:
        yield running


def cut_into_files(folder: Path, cuts) -> str:
    folder.mkdir()
    for number, (start, stop) in enumerate(itertools.pairwise([0, *cuts, len(ROWS)])):
        ROWS.iloc[start:stop].to_parquet(folder / f"{number:03d}.parquet", index=False)
    return str(folder)


def run(case, source: str, target: Path):
    """Run an operator over files; return the ids that stayed, and the receipt."""
    receipt = cdf.write_parquet(case(cdf.read_parquet(source)), target / "out", rejects=target / "rejects")
    return ids_in(target / "out"), receipt


def ids_in(folder: Path) -> list[int]:
    return [number for name in sorted(folder.glob("*.parquet")) for number in pq.read_table(name)["id"].to_pylist()]


@each_pending
def test_computing_it_block_by_block_is_refused(case, monkeypatch):
    monkeypatch.setattr(deferred_step, "_evaluators", [])  # as without a cluster that could run its passes
    with pytest.raises(
        PendingError, match=rf"^{case.operator}\b.* needs a full pass over the rows|^{case.operator} cannot.*"
    ):
        computed(case(table()))


@each_same_rows
def test_the_same_rows_come_out_with_the_same_new_values(case, tmp_path):
    written = {}
    for name, cuts in CUTS.items():
        (tmp_path / name).mkdir()
        run(case, cut_into_files(tmp_path / name / "in", cuts), tmp_path / name)
        written[name] = computed(cdf.read_parquet(str(tmp_path / name / "out"))).reset_index(drop=True)
    first = written["1 file"]
    assert first.columns.tolist() == [*ROWS.columns, *case.adds]
    pd.testing.assert_frame_equal(first[ROWS.columns.tolist()], ROWS.reset_index(drop=True))
    for table_written in written.values():
        pd.testing.assert_frame_equal(table_written, first)


@each_drop
def test_a_subset_comes_out_in_order_and_unchanged(case, tmp_path):
    ids, _ = run(case, cut_into_files(tmp_path / "in", (4, 9)), tmp_path)
    assert 0 < len(ids) < len(ROWS)
    written = computed(cdf.read_parquet(str(tmp_path / "out"))).reset_index(drop=True)
    expected = ROWS[ROWS["id"].isin(ids)].reset_index(drop=True)
    unchanged = [name for name in ROWS.columns if name not in case.rewrites]
    pd.testing.assert_frame_equal(written[unchanged], expected[unchanged])
    assert all(not written[name].equals(expected[name]) for name in case.rewrites)


@each_pending_with_one(["cuts"], [("1 file", ()), ("3 files", (4, 9)), ("one file empty", (4, 4, 9))])
def test_a_look_shows_what_a_run_writes(case, cuts, tmp_path):
    source = cut_into_files(tmp_path / "in", cuts)
    table = case(cdf.read_parquet(source))
    seen = table.compute().reset_index(drop=True)
    cdf.write_parquet(table, tmp_path / "out")
    written = cdf.read_parquet(str(tmp_path / "out")).compute().reset_index(drop=True)
    pd.testing.assert_frame_equal(seen, written)


@each_pending_with_one(
    ["range_bytes", "blocksize"], [("unlike", 900, "1kB"), ("small", 16_000_000, "1B"), ("large", 1, "1GB")]
)
def test_a_look_does_not_depend_on_partitions(case, range_bytes, blocksize, tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "SMALL_RANGE_BYTES", range_bytes)
    source = cut_into_files(tmp_path / "in", range(1, len(ROWS), 2))
    expected = computed(case(cdf.read_parquet(source)))
    table = case(cdf.read_parquet(source, blocksize=blocksize))
    assert table.npartitions == (1 if blocksize == "1GB" else table.npartitions)
    pd.testing.assert_frame_equal(table.compute(), expected)


FIGURES = (
    "rows_read",
    "rows_made",
    "rows_written",
    "rows_dropped",
    "rows_quarantined",
    "files",
    "ranges",
    "ranges_resumed",
)


@each_pending
def test_a_run_after_a_look_writes_the_same_and_runs_no_pass(case, tmp_path, cluster):
    source = cut_into_files(tmp_path / "in", (4, 9))
    plain = cdf.write_parquet(
        case(cdf.read_parquet(source)), tmp_path / "plain" / "out", rejects=tmp_path / "plain" / "rejects"
    )
    table = case(cdf.read_parquet(source, blocksize="1B"))
    len(table)
    started: list[tuple[int, int]] = []
    watch = lambda event: started.append((event.tasks, event.done)) if isinstance(event, StageStarted) else None  # noqa: E731
    cluster.watchers.append(watch)
    try:
        receipt = cdf.write_parquet(table, tmp_path / "looked" / "out", rejects=tmp_path / "looked" / "rejects")
    finally:
        cluster.watchers.remove(watch)
    assert all(tasks == done for tasks, done in started[:-1])
    assert [event for event in receipt.events if "earlier look" in event.text]
    for folder in ("out", "rejects"):
        names = sorted(name.name for name in (tmp_path / "plain" / folder).glob("*.parquet"))
        assert sorted(name.name for name in (tmp_path / "looked" / folder).glob("*.parquet")) == names
        for name in names:
            assert pq.read_table(tmp_path / "looked" / folder / name).equals(
                pq.read_table(tmp_path / "plain" / folder / name)
            )
    assert {name: getattr(receipt, name) for name in FIGURES} == {name: getattr(plain, name) for name in FIGURES}
    assert receipt.reasons().to_dict() == plain.reasons().to_dict()
    exchanged = [(each.step, each.keys, each.unique, each.key_bytes, each.drop_bytes) for each in receipt.exchanges]
    assert exchanged == [
        (each.step, each.keys, each.unique, each.key_bytes, each.drop_bytes) for each in plain.exchanges
    ]
    assert all(each.seconds > 0 for each in receipt.exchanges)


@each_drop
def test_rows_do_not_depend_on_files(case, tmp_path):
    kept = {}
    for name, cuts in CUTS.items():
        (tmp_path / name).mkdir()
        kept[name], _ = run(case, cut_into_files(tmp_path / name / "in", cuts), tmp_path / name)
    assert kept == dict.fromkeys(CUTS, kept["1 file"])


@each_drop
def test_every_removed_row_has_a_reason_and_is_in_the_rejects(case, tmp_path):
    ids, receipt = run(case, cut_into_files(tmp_path / "in", (4, 9)), tmp_path)
    removed = sorted(set(range(len(ROWS))) - set(ids))
    assert receipt.reasons()["rows"].sum() == receipt.rows_dropped == len(removed)
    rejects = pd.concat(pd.read_parquet(name) for name in (tmp_path / "rejects").glob("*.parquet"))
    assert sorted(rejects["id"]) == removed
    assert rejects["reject_reason"].notna().all()
    assert set(rejects["reject_step"]) == {case.operator}
    require_documented_rejects(case, rejects)
    assert (rejects["reject_matched_file"].notna() == rejects["reject_matched_offset"].notna()).all()
