# SPDX-License-Identifier: Apache-2.0
"""The picture of a monitored run, from literal samples: what was held, limits, thresholds, and what happened."""

import pandas as pd
import pytest

from curator_df.monitor.alerts import DEFAULT_RULES, Alert, budget_share
from curator_df.monitor.memory_monitor import COLUMNS, draw_memory

pytest.importorskip("matplotlib", reason="matplotlib is in the monitor extra")

GB = 1_000_000_000


def samples():
    rows = []
    for seconds in (0.0, 1.0, 2.0):
        shared = {"seconds": seconds, "time": pd.Timestamp.now("UTC"), "allowed_bytes": 4 * GB, "host": "node"}
        held = {"counted_bytes": GB, "limited_bytes": GB}
        worker = {"limit_bytes": 2 * GB, "is_paused": seconds == 1.0, "spilled_bytes": int(seconds) * 1_000}
        rows += [
            {**shared, **held, "kind": "client", "name": "client", "pid": 1},
            {**shared, **held, **worker, "kind": "worker", "name": "worker 0", "pid": 2},
            {**shared, "kind": "gpu", "name": "GPU 0", "gpu_used_bytes": 5 * GB, "gpu_total_bytes": 16 * GB},
        ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def drawn(rules):
    events = [(1.0, "retry", "range 3 again: memory"), (1.5, "recycle", "worker 0")]
    alerts = [Alert(1.0, "paused", "worker 0", 1.0, 1.0, "worker 0 is paused")]
    axes = draw_memory(samples(), events, alerts, rules).axes
    return [dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True)) for panel in axes]


def test_limits_thresholds_spills_retries_and_pauses_are_drawn():
    tree, workers, gpus = drawn(DEFAULT_RULES)
    assert set(tree) == {"client", "worker 0", "allowed, 4.00 GB", "alert at 90%", "input split retried", "alert"}
    assert set(workers) == {"worker 0", "worker 0, spilled", "paused", "limit, 2.00 GB", "alert at 90%"}
    assert set(gpus) == {"GPU 0", "device, 16.00 GB", "alert at 90%"}
    heights = [panel["alert at 90%"].get_ydata()[0] for panel in (tree, workers, gpus)]
    assert heights == [3.6 * GB, 1.8 * GB, 14.4 * GB]
    assert list(workers["worker 0, spilled"].get_ydata()) == [0, 1_000, 2_000]
    assert len(tree["input split retried"].get_segments()) == 1


def test_thresholds_are_those_of_the_rules():
    tree, workers, gpus = drawn([budget_share(0.5)])
    assert tree["alert at 50%"].get_ydata()[0] == 2 * GB
    assert not any(label.startswith("alert at") for label in (*workers, *gpus))
