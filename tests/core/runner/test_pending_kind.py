# SPDX-License-Identifier: Apache-2.0
"""A kind of deferred operation that the engine has never heard of: rows of rare domains are dropped. It needs nothing in core."""

from __future__ import annotations

import collections
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd
import pytest

import curator_df as cdf
from curator_df.core.planning.program import DiskNeed, Pending, PendingPass, Program, StageStart, Step
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.range_action import RangeAction
from curator_df.core.ranges.sink import StageSink
from curator_df.core.runner import run
from curator_df.errors import PendingError
from curator_df.files.storage import Folder
from curator_df.ops.duplicates.exact import refuse_block
from tests.core.runner.fake_client import inline_cluster


@dataclass(frozen=True)
class DomainCounts(StageSink):
    """Sink that counts the rows of each domain."""

    folder: Folder
    writer_factor: float = 0.0
    fingerprint: str = "domains"

    def open(self, number: int, meta: Any, buffer_bytes: int) -> RangeCounts:
        return RangeCounts()


class RangeCounts:
    def __init__(self) -> None:
        self._counts = collections.Counter[str]()

    def append(self, block: Any) -> None:
        self._counts.update(block["domain"].value_counts().to_dict())

    def commit(self) -> list[Any]:
        return []

    def discard(self) -> None:
        self._counts.clear()

    @property
    def summary(self) -> dict[str, int]:
        return dict(self._counts)


@dataclass(frozen=True)
class RareDomainDrop(Pending):
    """Deferred drop of the rows whose domain has fewer than ``least`` rows."""

    least: int
    uses_addresses: ClassVar[bool] = False

    def passes(self, name: str) -> Sequence[PendingPass]:
        return [PendingPass(f"domains for {name}", "count", 0.0)]

    def disk_need(self, name: str, start: StageStart) -> DiskNeed | None:
        return None

    def prepare(self, runner: Any, before: Program, step: Step) -> frozenset[str]:
        with runner.open_stage(before, step) as stage:
            title = f"{step.name}: domains"
            done = stage.stream(title, before, ("domain",), DomainCounts(stage.home), runner.ranges)
        counts = collections.Counter[str]()
        for record in done:
            counts.update(record.summary)
        return frozenset(domain for domain, count in counts.items() if count < self.least)

    def resolved(self, prepared: frozenset[str]) -> RangeAction:
        return DropDomains(self, prepared)


@dataclass(frozen=True)
class DropDomains(RangeAction):
    pending: RareDomainDrop
    rare: frozenset[str]

    def of_range(self, number: int) -> DropDomains:
        return self

    def run(self, block: Any) -> Outcome:
        is_rare = block["domain"].isin(self.rare).to_numpy(dtype=bool)
        return Outcome(block[~is_rare], {"rare domain": int(is_rare.sum())} if is_rare.any() else {})

    def finish(self, step: str) -> None:
        """Nothing to compare: the rows are not named."""


def drop_rare_domains(df: Any, least: int) -> Any:
    kernel = BlockKernel(
        "drop_rare_domains", refuse_block, {"operator": "drop_rare_domains"}, pending=RareDomainDrop(least)
    )
    return map_blocks(df, kernel, meta=df._meta)


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


DOMAINS = ["a.org"] * 50 + ["b.org"] * 3 + ["c.org"] * 20 + ["b.org"] * 4 + ["d.org"]


@pytest.fixture
def docs(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 300)
    rows = [json.dumps({"domain": domain, "text": f"text {n}"}) for n, domain in enumerate(DOMAINS)]
    (tmp_path / "in.jsonl").write_text("".join(f"{row}\n" for row in rows))
    return cdf.read_jsonl(tmp_path / "in.jsonl")


def test_a_kind_that_is_not_in_core_is_planned_run_and_counted(docs, tmp_path):
    left = docs.pipe(drop_rare_domains, least=8).pipe(cdf.keep_where, "text != 'text 0'")
    titles = [stage.title for stage in cdf.explain(left).stages]
    assert titles == ["domains for drop_rare_domains", "write"]
    receipt = cdf.write_parquet(left, tmp_path / "out")
    assert receipt.rows_written == 69
    assert receipt.reasons().set_index("reason")["rows"].to_dict() == {"rare domain": 8, "keep_where": 1}
    assert set(pd.read_parquet(tmp_path / "out")["domain"]) == {"a.org", "c.org"}


def test_its_pass_is_resumed_and_its_parameters_are_part_of_the_run(docs, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(DropDomains, "of_range", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            cdf.write_parquet(docs.pipe(drop_rare_domains, least=8), tmp_path / "out")
    with pytest.raises(cdf.errors.ResumeError, match="least"):
        cdf.write_parquet(docs.pipe(drop_rare_domains, least=2), tmp_path / "out", on_existing="resume")
    receipt = cdf.write_parquet(docs.pipe(drop_rare_domains, least=8), tmp_path / "out", on_existing="resume")
    assert receipt.rows_written == 70


def test_it_can_be_looked_at_and_refuses_to_run_block_by_block(docs):
    left = docs.pipe(drop_rare_domains, least=8)
    assert len(left.compute()) == 70
    with pytest.raises(PendingError, match="needs a full pass over the rows"):
        refuse_block(docs._meta, operator="drop_rare_domains")
