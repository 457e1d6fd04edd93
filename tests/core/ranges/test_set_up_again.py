# SPDX-License-Identifier: Apache-2.0
"""Objects that are set up on workers which are started again in mid-run."""

import json
import tempfile
import time
from pathlib import Path

import curator_df as cdf
from curator_df.core.runner import run
from tests.core.ranges.test_set_up import ROWS, Noting, processes


class Slowly(Noting):
    """Takes long enough for workers to come back while there is work."""

    def __call__(self, block):
        time.sleep(0.4)
        return super().__call__(block)


def test_workers_that_are_started_again_in_a_run_do_not_set_the_machine_up_again(tmp_path, monkeypatch):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"id": n, "text": "some words"}) + "\n" for n in range(ROWS)))
    for name, value in {"SMALL_RANGE_BYTES": 600, "RANGE_BYTES": 600, "MOST_RANGES": 30}.items():
        monkeypatch.setattr(run, name, value)
    docs = cdf.read_jsonl(tmp_path / "in.jsonl", blocksize="1kB")
    notes, left = tmp_path / "notes", set(Path(tempfile.gettempdir()).glob("curator-df-*.once"))
    with cdf.start_cluster(memory="4GB", cpus=2, recycle_after=6):
        receipt = cdf.write_parquet(docs.pipe(cdf.keep_where, Slowly(notes)), tmp_path / "out")
    assert receipt.rows_written == ROWS - 100
    assert len(processes(notes, "setup")) > 2
    assert len(processes(notes, "on_node")) == 1
    assert set(Path(tempfile.gettempdir()).glob("curator-df-*.once")) <= left
