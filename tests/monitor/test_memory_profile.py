# SPDX-License-Identifier: Apache-2.0
"""What `profile_memory` measures of functions whose needs are known."""

import json
import time

import numpy as np
import pandas as pd
import pytest

import curator_df as cdf
from curator_df.core.ranges.foreign_step import FOREIGN_PEAK_FACTOR
from curator_df.monitor import fresh_process

PROSE = "It was the best of times, and it was the worst of times; that we have to be with all of it.\n"


@pytest.fixture(scope="module")
def sample():
    return pd.DataFrame({"id": range(400), "text": [PROSE * 20] * 400})


def three_blocks_and_20_mb(block):
    text_bytes = int(block.text.str.len().sum())
    kept = np.ones(3 * text_bytes, np.uint8), np.ones(20_000_000, np.uint8)
    return block.id >= kept[0][0] - 1


def keeps_30_mb(block):
    if not hasattr(np, "_kept_by_a_test"):
        np._kept_by_a_test = np.ones(30_000_000, np.uint8)
    return block.id >= 0


def fails(block):
    raise ZeroDivisionError("on the sample")


def one_step(profile):
    (step,) = profile.steps
    return step


@pytest.fixture(scope="module")
def profile(sample):
    return cdf.profile_memory(lambda df: df.pipe(cdf.keep_where, three_blocks_and_20_mb), sample)


def test_factor_and_fixed_bytes_of_a_function_are_found(profile):
    step = one_step(profile)
    assert (step.step, step.stated_factor) == ("keep_where", 1.2)
    assert step.peak_factor == pytest.approx(3.1, abs=0.11)  # and masks
    assert step.fixed_bytes == pytest.approx(20_000_000, abs=2_000_000)
    assert len(step.extra_bytes) == 3
    said = str(profile)
    assert f"keep_where: peak_factor {step.peak_factor:.1f} (declared: 1.2, " in said
    assert f"Declare BlockKernel(..., Price(peak_factor={step.peak_factor:.1f}, fixed_bytes=" in said


def test_what_a_first_call_leaves_is_told_apart(sample):
    step = one_step(cdf.profile_memory(lambda df: df.pipe(cdf.keep_where, keeps_30_mb), sample))
    assert step.held_bytes == pytest.approx(30_000_000, abs=5_000_000)
    assert step.fixed_bytes < 2_000_000


def test_operators_of_ours_need_no_more_than_they_state(sample, tmp_path):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"id": n, "text": PROSE * 20}) + "\n" for n in range(2_000)))
    docs = cdf.read_jsonl(tmp_path / "in.jsonl").pipe(cdf.keep_where, "id >= 0")
    profile = cdf.profile_memory(
        lambda df: df.pipe(cdf.keep_profile, cdf.profiles.DATATROVE_GOPHER_QUALITY).pipe(cdf.drop_exact_duplicates),
        docs,
    )
    table = profile.to_frame()
    assert table.step.tolist() == ["keep_profile", "drop_exact_duplicates"]  # not the step of the sample itself
    assert table.peak_factor[0] <= table.stated_factor[0]
    assert table.is_measured[0]
    assert pd.isna(table.peak_factor[1])
    assert "a deferred operation, which does not change single blocks" in str(profile)
    assert "This is within the declared memory" in str(profile)


def test_steps_that_are_not_ours_are_measured_too(sample):
    step = one_step(cdf.profile_memory(lambda df: df.assign(copy=df.text + "."), sample, sample_size="32MB"))
    assert (step.stated_factor, step.is_measured) == (FOREIGN_PEAK_FACTOR, False)
    assert step.peak_factor >= 0.9  # the copy; 2 MB that a first call leaves are little beside 32 MB


def test_the_lines_that_hold_most_are_told(profile):
    pytest.importorskip("memray", reason="needs the profile extra (memray is not installed)")
    (most, held_bytes), *_ = one_step(profile).allocations
    line = three_blocks_and_20_mb.__code__.co_firstlineno + 2
    assert most == f"test_memory_profile.py:{line} (three_blocks_and_20_mb)"
    largest = max(one_step(profile).extra_bytes)
    assert held_bytes == pytest.approx(3 * largest + 20_000_000, rel=0.1)  # of text, which is nearly all of the block
    assert f"; largest allocations: {most} " in str(profile)


def test_an_operator_that_raises_says_what_it_said(sample):
    with pytest.raises(
        cdf.errors.OperatorError, match=r"(?s)a separate process .* It failed with exit status 1.*on the sample"
    ):
        cdf.profile_memory(lambda df: df.pipe(cdf.keep_where, fails), sample)


def waits(block):
    time.sleep(60)
    return block.id >= 0


def test_an_operator_that_takes_too_long_is_ended_and_said(sample, monkeypatch):
    monkeypatch.setattr(fresh_process, "TIMEOUT_SECONDS", 2)
    with pytest.raises(
        cdf.errors.OperatorError,
        match=r"profile_memory: .* did not finish within 2 s and was killed. Use a smaller sample",
    ):
        cdf.profile_memory(lambda df: df.pipe(cdf.keep_where, waits), sample)


def test_nothing_to_measure_is_refused(sample, tmp_path):
    with pytest.raises(cdf.errors.ParameterError, match="returned the table without a new step"):
        cdf.profile_memory(lambda df: df, sample)
    with pytest.raises(cdf.errors.ParameterError, match="the sample has no rows"):
        cdf.profile_memory(lambda df: df.pipe(cdf.keep_where, "id > 0"), sample.head(0))
    (tmp_path / "in.jsonl").write_text("\n\n")
    empty = cdf.read_jsonl(tmp_path / "in.jsonl", dtype={"id": "int64"})
    with pytest.raises(cdf.errors.ParameterError, match="the sample has no rows"):
        cdf.profile_memory(lambda df: df.pipe(cdf.keep_where, "id > 0"), empty)
