# SPDX-License-Identifier: Apache-2.0
"""Workers that are started again in the middle of a run, because that was asked for."""

import pytest

from tests.faults.runs import EXPECTED, PATIENCE_SECONDS, ROWS, SCRIPT, finish, ids


@pytest.mark.proof
@pytest.mark.timeout(3 * PATIENCE_SECONDS)
@pytest.mark.parametrize(
    ("cpus", "least"),
    [
        (1, 3),  # 33 ranges, and work waits until the worker is back
        (2, 1),  # while one is away the other may well do all that is left
    ],
)
def test_no_work_is_lost_when_workers_are_started_again_and_again(start, corpus, tmp_path, cpus, least):
    script = tmp_path / "script.py"
    more_ranges = SCRIPT.replace("100_000", "20_000")
    script.write_text(more_ranges.replace("memory=memory, cpus=2", f"memory=memory, cpus={cpus}, recycle_after=8"))
    receipt = finish(start(script, corpus, tmp_path / "out", memory="1500MB"))
    assert ids(tmp_path / "out") == EXPECTED
    assert receipt["rows_read"] == ROWS
    assert receipt["retries"] == {}
    said = [event for event in receipt["events"] if "restarted after" in event["text"]]
    assert len(said) >= least
    assert receipt["settings"]["recycled"].startswith(f"{len(said)} restarts of workers")
