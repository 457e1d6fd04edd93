# SPDX-License-Identifier: Apache-2.0
"""``ignore_common=``: what many documents share makes no two of them duplicates; copies still are."""

from __future__ import annotations

import collections

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.runner import run
from curator_df.dedup.near import frequent, stages
from curator_df.files.storage import Folder
from curator_df.kernels.minhash.frequent_shingles import listed_hashes
from curator_df.profiles.minhash import FINEWEB
from tests.core.runner.fake_client import inline_cluster
from tests.dedup.adversarial_sets import SETS, Documents
from tests.ops.test_near_duplicates import ids_in, write_rows

SETTINGS = {"scheme": FINEWEB, "ignore_common": 0.05}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


def kept_rows(folder, docs: Documents, **settings) -> set[int]:
    table = cdf.read_jsonl(write_rows(folder / "in", docs.texts, 1))
    cdf.write_parquet(table.pipe(cdf.drop_near_duplicates, **settings), folder / "out", rejects=folder / "rejects")
    return set(ids_in(folder / "out"))


def lost_of(docs: Documents, kept: set[int]) -> list[int]:
    """Return the rows that are no copies, and of which no copy was kept either."""
    copied = collections.defaultdict(list)
    for copy, number in docs.copies.items():
        copied[number].append(copy)
    originals = [number for number in range(len(docs.texts)) if number not in docs.copies]
    return [number for number in originals if number not in kept and not kept & set(copied[number])]


WIPED = ("function calls", "licensed books")
"""Sets whose documents are as similar to each other as ``jaccard_threshold`` asks."""


@pytest.mark.parametrize("name", SETS)
def test_no_source_loses_what_is_not_a_copy(tmp_path, name):
    docs = SETS[name](180)
    kept = kept_rows(tmp_path, docs, **SETTINGS)
    assert lost_of(docs, kept) == []
    found = sum(not {copy, number} <= kept for copy, number in docs.copies.items())
    if (
        name != "forum signatures"
    ):  # there, the word that differs is often in the signature, of which most copies are made
        assert found >= 0.8 * len(docs.copies)
    if name == "mirrored sites":
        assert found == len(docs.copies) == sum(source == "source mirror" for source in docs.sources)
    without = kept_rows(tmp_path / "without", docs, scheme=FINEWEB)
    assert (len(lost_of(docs, without)) > 150) == (name in WIPED)


def plain_ignored(texts: list[str], share: float) -> set[int]:
    counted = collections.Counter(shingle for text in texts for shingle in set(listed_hashes(text, FINEWEB).tolist()))
    return {shingle for shingle, count in counted.items() if count > max(share * len(texts), 10)}


def test_each_dropped_row_is_similar_to_its_match_without_what_is_common(tmp_path):
    docs = SETS["function calls"](180)
    kept = kept_rows(tmp_path, docs, **SETTINGS)
    ignored = plain_ignored(docs.texts, 0.05)
    sets = [set(listed_hashes(text, FINEWEB).tolist()) for text in docs.texts]
    rejects = pd.concat(pq.read_table(path).to_pandas() for path in (tmp_path / "rejects").glob("*.parquet"))
    assert sorted(rejects.id) == sorted(set(range(len(docs.texts))) - kept)
    lines = (tmp_path / "in" / "0.jsonl").read_bytes().splitlines(keepends=True)
    starts = np.cumsum([0, *map(len, lines)]).tolist()
    for row in rejects.itertuples():
        match = starts.index(int(row.reject_matched_offset))
        assert match in kept
        similarities = [
            len((sets[row.id] & sets[match]) - left) / len((sets[row.id] | sets[match]) - left)
            for left in (set(), ignored)
        ]
        assert row.reject_value == pytest.approx(min(similarities))
        assert row.reject_value >= 0.8


def test_the_same_rows_and_figures_however_the_input_is_cut(tmp_path, monkeypatch):
    docs = SETS["licensed books"](150)
    outcomes = []
    for files, range_bytes in ((1, 10**9), (3, 10**9), (9, 20_000)):
        monkeypatch.setattr(run, "SMALL_RANGE_BYTES", range_bytes)
        table = cdf.read_jsonl(write_rows(tmp_path / f"in{files}", docs.texts, files))
        groups = cdf.find_near_duplicates(table, id="id", workdir=tmp_path / f"work{files}", **SETTINGS)
        [said] = cdf.read_receipt(groups).exchanges
        found = groups.compute()[["id", "matched_id", "jaccard", "kept"]].reset_index(drop=True)
        details = {
            name: said.details[name] for name in ("common_shingles", "ignored_shingles", "ignored_above_documents")
        }
        outcomes.append((found, details))
        clean = cdf.drop_near_duplicates(table, groups=groups)
        assert [stage.title for stage in cdf.explain(clean).stages] == ["write"]
        cdf.write_parquet(clean, tmp_path / f"out{files}")
        assert ids_in(tmp_path / f"out{files}") == sorted(set(range(len(docs.texts))) - set(found.id[~found.kept]))
        assert not list((tmp_path / f"work{files}").rglob("cells/*"))
    for found, details in outcomes[1:]:
        pd.testing.assert_frame_equal(found, outcomes[0][0])
        assert details == outcomes[0][1]
    ignored = plain_ignored(docs.texts, 0.05)
    assert outcomes[0][1] == {
        "common_shingles": len(ignored),
        "ignored_shingles": len(ignored),
        "ignored_above_documents": 10,
    }
    with pytest.raises(
        errors.ParameterError, match=r"found with ignore_common=0\.05, but this call has ignore_common=0\.1"
    ):
        cdf.drop_near_duplicates(table, scheme=FINEWEB, ignore_common=0.1, groups=groups)


def test_the_receipt_names_the_most_common_passages(tmp_path):
    docs = SETS["licensed books"](120)
    table = cdf.read_jsonl(write_rows(tmp_path / "in", docs.texts))
    receipt = cdf.write_parquet(table.pipe(cdf.drop_near_duplicates, **SETTINGS), tmp_path / "out")
    details = receipt.exchanges[0].details
    assert details["most_common"]
    for one in details["most_common"]:
        assert one["text"] in docs.texts[0]
        assert one["documents"] == len(docs.texts)
    assert f"{details['ignored_shingles']:,} common shingles ignored; in {len(docs.texts)} rows: " in str(
        receipt.exchanges[0]
    )


def test_only_the_most_common_shingles_are_ignored_if_there_are_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr(frequent, "MOST_IGNORED", 40)
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 4_000)
    docs = SETS["dialogues"](60)
    table = cdf.read_jsonl(write_rows(tmp_path / "in", docs.texts, 3))
    receipt = cdf.write_parquet(table.pipe(cdf.drop_near_duplicates, **SETTINGS), tmp_path / "out")
    details = receipt.exchanges[0].details
    assert details["common_shingles"] > details["ignored_shingles"] == 40


def test_a_few_copies_are_no_template(tmp_path):
    docs = Documents(9)
    texts = [docs.words(60) for _ in range(20)]
    docs.texts = [*texts, *[text + " more" for text in texts[:3] for _ in range(9)]]
    assert len(kept_rows(tmp_path, docs, scheme=FINEWEB, ignore_common=0.01)) == 20


@pytest.mark.parametrize("name", ["run_cells", "run_counts", "run_choice", "run_verify"])
def test_an_interrupted_run_goes_on(tmp_path, monkeypatch, name):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 20_000)
    docs = SETS["function calls"](60)
    clean = cdf.read_jsonl(write_rows(tmp_path / "in", docs.texts)).pipe(cdf.drop_near_duplicates, **SETTINGS)
    cdf.write_parquet(clean, tmp_path / "whole")

    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(stages, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            cdf.write_parquet(clean, tmp_path / "out")
    cdf.write_parquet(clean, tmp_path / "out", on_existing="resume")
    assert ids_in(tmp_path / "out") == ids_in(tmp_path / "whole")
    assert 50 < len(ids_in(tmp_path / "out")) < 63


@pytest.mark.parametrize("part", ["cells", "shingle-counts"])
def test_a_damaged_file_of_counts_is_written_again(tmp_path, monkeypatch, part):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 20_000)
    docs = SETS["function calls"](60)
    clean = cdf.read_jsonl(write_rows(tmp_path / "in", docs.texts)).pipe(cdf.drop_near_duplicates, **SETTINGS)
    name = {"cells": "run_cells", "shingle-counts": "run_counts"}[part]
    task, damaged = getattr(stages, name), tmp_path / "damaged"

    def after_damage(job_bytes, attempt):
        if not damaged.exists():
            path = min((tmp_path / "out").rglob(f"{part}/part-000001.slices"))
            content = bytearray(path.read_bytes())
            content[60] ^= 255
            path.write_bytes(content)
            damaged.touch()
        return task(job_bytes, attempt)

    monkeypatch.setattr(stages, name, after_damage)
    cdf.write_parquet(clean, tmp_path / "out")
    assert damaged.exists()
    monkeypatch.setattr(stages, name, task)
    cdf.write_parquet(clean, tmp_path / "whole")
    assert ids_in(tmp_path / "out") == ids_in(tmp_path / "whole")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"ignore_common": 0}, "ignore_common=0 is not above 0 and below 1"),
        ({"ignore_common": 1.0}, "ignore_common=1.0 is not above 0"),
        ({"ignore_common": "0.1"}, "ignore_common='0.1' must be a number"),
        (
            {"ignore_common": 0.1, "jaccard_threshold": None},
            "not possible with signatures=, against= or jaccard_threshold",
        ),
    ],
    ids=str,
)
def test_parameters_out_of_range_are_refused(tmp_path, wrong, said):
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", ["a text"]))
    for operator in (cdf.drop_near_duplicates, cdf.find_near_duplicates):
        with pytest.raises(errors.ParameterError, match=said):
            operator(docs, **wrong)
    sketched = docs.pipe(cdf.add_minhash)
    with pytest.raises(errors.ParameterError, match="not possible with signatures="):
        cdf.drop_near_duplicates(sketched, signatures="minhash", ignore_common=0.1)


def test_a_plan_says_that_shingles_are_counted_and_what_memory_that_takes(tmp_path):
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", ["a text"] * 50))
    plain, counting = (
        cdf.explain(docs.pipe(cdf.drop_near_duplicates, **settings)) for settings in ({}, {"ignore_common": 0.1})
    )
    assert "count shingles" in str(counting)
    assert "count the common shingles of all texts" in str(counting)
    assert "shingles" not in str(plain)
    assert counting.projected_bytes > plain.projected_bytes


def test_exact_counts_that_the_disk_cannot_hold_are_refused_before_they_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(Folder, "free_bytes", lambda _: 15_999)
    with pytest.raises(
        errors.DiskFullError, match=r"needs up to 16.* for temporary files.* use a larger ignore_common="
    ):
        frequent.require_room_for_counts(1_000, Folder(str(tmp_path)))
    frequent.require_room_for_counts(999, Folder(str(tmp_path)))
