# SPDX-License-Identifier: Apache-2.0
"""Every alert fires in a case that was staged for it, and not in the same case when all is well (``promtool test rules``)."""

import re
import shutil
import subprocess
from typing import NamedTuple

import pytest
import yaml

from curator_df.monitor.series import METRICS
from curator_df.monitor.stack import RULES, rule_groups

DRIVER = 'job="curator-df", instance="here:1", driver="d", role="driver"'
SCHEDULER = 'job="curator-df", instance="here:2", driver="d", role="scheduler"'
WORKER = 'job="curator-df", instance="here:3", driver="d", role="worker", worker="0"'


class Case(NamedTuple):
    """Series with their values at each minute, in Prometheus' notation."""

    bad: dict[str, str]
    well: dict[str, str]


def driver(name, labels=""):
    return f"{name}{{{DRIVER}{labels}}}"


READ, WRITTEN = driver("curator_df_rows_read_total"), driver("curator_df_rows_written_total")
PEAK, ALLOWED = driver("curator_df_memory_peak_bytes"), driver("curator_df_memory_allowed_bytes")
HELD, PROJECTED = driver("curator_df_memory_held_bytes"), driver("curator_df_memory_projected_bytes")
PROGRESS, ACTIVE = driver("curator_df_progress_timestamp_seconds"), driver("curator_df_runs_active")
EXPECTED = driver("curator_df_workers_expected")
TASKS = driver("curator_df_tasks_total", ', stage="write", outcome="done"')
USED = f'curator_df_gpu_memory_used_bytes{{{WORKER}, host="n", gpu="0"}}'
TOTAL = f'curator_df_gpu_memory_total_bytes{{{WORKER}, host="n", gpu="0"}}'


def failed(outcome):
    return driver("curator_df_runs_total", f', outcome="{outcome}"')


def retried(cause):
    return driver("curator_df_retries_total", f', cause="{cause}"')


def aside(cause):
    return driver("curator_df_rows_quarantined_total", f', cause="{cause}"')


def workers(state):
    return f'dask_scheduler_workers{{{SCHEDULER}, state="{state}"}}'


def spilled(activity):
    return f'dask_worker_spill_bytes_total{{{WORKER}, activity="{activity}"}}'


def skew(value):
    return {driver("curator_df_exchange_skew_ratio", ', step="drop_exact_duplicates"'): value}


CASES = {
    "CuratorRunFailed": Case(
        {failed("failed"): "0x9 1x60"}, {failed("failed"): "0x60", failed("finished"): "0x9 1x60"}
    ),
    "CuratorDriverGone": Case({f"up{{{DRIVER}}}": "1 0x60"}, {f"up{{{DRIVER}}}": "1x60", f"up{{{WORKER}}}": "0x60"}),
    "CuratorRunStalled": Case({PROGRESS: "0x60", ACTIVE: "1x60"}, {PROGRESS: "0+60x60", ACTIVE: "1x60"}),
    "CuratorBudgetNearlyUsed": Case({HELD: "91x60", ALLOWED: "100x60"}, {HELD: "89x60", ALLOWED: "100x60"}),
    "CuratorBudgetExceeded": Case({PEAK: "101x60", ALLOWED: "100x60"}, {PEAK: "100x60", ALLOWED: "100x60"}),
    "CuratorPlanExceeded": Case({PEAK: "81x60", PROJECTED: "80x60"}, {PEAK: "80x60", PROJECTED: "80x60"}),
    "CuratorWorkersMissing": Case(
        {workers("idle"): "1x60", workers("saturated"): "0x60", EXPECTED: "2x60"},
        {workers("idle"): "1x60", workers("saturated"): "1x60", EXPECTED: "2x60"},
    ),
    "CuratorWorkerLost": Case({retried("worker lost"): "0x9 1x60"}, {retried("memory"): "0x9 1x60"}),
    "CuratorWorkerPaused": Case({workers("paused"): "1x60"}, {workers("paused"): "0x60", workers("idle"): "1x60"}),
    "CuratorManyRetries": Case(
        {retried("memory"): "0+1x60", retried("exclusive"): "0+1x60", TASKS: "0+10x60"},
        {retried("memory"): "0+1x60", TASKS: "0+20x60"},
    ),
    "CuratorRowsOutOfMemory": Case({aside("memory"): "0x9 1x60"}, {aside("memory"): "0x60", aside("other"): "0+1x60"}),
    "CuratorRowsQuarantined": Case(
        {aside("other"): "0+2x60", READ: "0+100x60"},
        {aside("other"): "0+1x60", aside("memory"): "0+5x60", READ: "0+200x60"},
    ),
    "CuratorNearlyAllDropped": Case({WRITTEN: "0+4x60", READ: "0+100x60"}, {WRITTEN: "0+6x60", READ: "0+100x60"}),
    "CuratorWorkerLeaks": Case(
        {
            driver("curator_df_leaks_total", ', step=""'): "0x60",
            driver("curator_df_leaks_total", ', step="f"'): "_x9 1x60",
        },
        {driver("curator_df_leaks_total", ', step=""'): "0x60"},
    ),
    "CuratorSpilling": Case(
        {spilled("disk-write"): f"0+{51_000_000 * 60}x60"},
        {spilled("disk-write"): f"0+{49_000_000 * 60}x60", spilled("memory-read"): f"0+{99_000_000 * 60}x60"},
    ),
    "CuratorGpuMemoryNearlyFull": Case({USED: "91x60", TOTAL: "100x60"}, {USED: "89x60", TOTAL: "100x60"}),
    "CuratorHashSkew": Case(skew("3.1x60"), skew("3x60")),
}
"""One for each rule: it must fire in the first case, and not in the second."""
EVALUATED = "16m"
"""What happens once happens after 10 minutes; the longest time that a rule waits or looks back is 15."""


def promtool(*arguments):
    return subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)


def what_fires(folder, rule, values):
    """Return what promtool says of a case in which no alert is expected: nothing, or the alert that fires."""
    (folder / "alerts.yml").write_text(yaml.safe_dump(rule_groups()))
    case = {
        "interval": "1m",
        "input_series": [{"series": series, "values": value} for series, value in values.items()],
        "alert_rule_test": [{"eval_time": EVALUATED, "alertname": rule.name, "exp_alerts": []}],
    }
    (folder / "test.yml").write_text(yaml.safe_dump({"rule_files": ["alerts.yml"], "tests": [case]}))
    checked = promtool("test", "rules", folder / "test.yml")
    return "" if checked.returncode == 0 else checked.stdout + checked.stderr


needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool, of the package prometheus"
)


def test_every_rule_has_a_case():
    assert list(CASES) and set(CASES) == {rule.name for rule in RULES}


@needs_promtool
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_fires_when_it_should_and_only_then(rule, tmp_path):
    case = CASES[rule.name]
    said = what_fires(tmp_path, rule, case.bad)
    assert f'alertname="{rule.name}"' in said
    assert f'severity="{rule.severity}"' in said
    assert 'driver="d"' in said
    assert what_fires(tmp_path, rule, case.well) == ""


def test_rules_ask_for_metrics_that_are_served():
    for rule in RULES:
        assert set(re.findall(r"curator_df_\w+", rule.expr)) <= set(METRICS)
        assert re.search(r"curator_df_|dask_|up{", rule.expr)
