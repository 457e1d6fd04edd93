# SPDX-License-Identifier: Apache-2.0
"""Alerts from literal samples: when they are raised, how often, and what is said."""

import logging

import pytest

from curator_df.monitor import alerts
from curator_df.monitor.alerts import AlertBook
from curator_df.monitor.memory_monitor import COLUMNS


def row(**values):
    return {**dict.fromkeys(COLUMNS), "host": "node", **values}


def worker(name="worker 0", pid=2, **values):
    return row(kind="worker", name=name, pid=pid, **values)


def raised(rule, *samples):
    book = AlertBook([rule], None)
    for seconds, rows in enumerate(samples):
        book.look(float(seconds), rows)
    return [(alert.seconds, alert.subject, alert.message) for alert in book.alerts]


def test_an_alert_is_raised_once_until_it_is_over():
    samples = [
        [row(kind="client", name="client", pid=1, counted_bytes=held, allowed_bytes=100)]
        for held in (80, 91, 95, 89, 91, 50, 92)
    ]
    said = "all processes together use 91% of the memory budget"
    assert raised(alerts.budget_share(0.9), *samples) == [
        (1.0, "cluster", said),
        (6.0, "cluster", said.replace("91", "92")),
    ]


def test_the_share_of_the_budget_counts_each_process_once_and_all_of_them():
    rows = [
        row(kind="client", name="client", pid=1, counted_bytes=30, allowed_bytes=100),
        worker(pid=1, counted_bytes=30, allowed_bytes=100),  # threads of the client's own process
        worker(name="worker 1", pid=3, counted_bytes=40, allowed_bytes=100),
    ]
    assert alerts.tree_bytes(rows) == 70
    assert raised(alerts.budget_share(0.7), rows)
    assert not raised(alerts.budget_share(0.71), rows)
    assert not raised(alerts.budget_share(0.1), [worker(counted_bytes=30)])  # nobody knows what is allowed


@pytest.mark.parametrize(
    ("rule", "rows", "text"),
    [
        (
            alerts.worker_share(),
            [worker(limited_bytes=92, rss_bytes=99, limit_bytes=100)],
            "worker 0 uses 92% of its memory limit; at 95% it is killed",
        ),
        (
            alerts.worker_paused(),
            [worker(is_paused=True)],
            "worker 0 is paused: its memory is full, so it starts no new tasks",
        ),
        (alerts.spill_rate(), [worker(spill_bytes_per_second=6e7)], "worker 0 spills 60 MB per second to disk"),
        (
            alerts.gpu_share(),
            [row(kind="gpu", name="GPU 1", gpu_used_bytes=95, gpu_total_bytes=100)],
            "GPU 1 uses 95% of its memory",
        ),
        (alerts.worker_silent(), [worker(silent_seconds=31.0)], "worker 0 has not answered for 31 s"),
    ],
    ids=lambda value: value.name if isinstance(value, alerts.AlertRule) else "",
)
def test_each_rule_says_what_is_wrong(rule, rows, text):
    assert [said for _, _, said in raised(rule, rows)] == [text]


@pytest.mark.parametrize("rule", alerts.DEFAULT_RULES, ids=lambda rule: rule.name)
def test_no_rule_alerts_on_a_quiet_cluster(rule):
    quiet = [
        row(kind="client", name="client", pid=1, counted_bytes=10, allowed_bytes=100),
        worker(
            limited_bytes=30, limit_bytes=100, counted_bytes=20, is_paused=False, silent_seconds=0.4, allowed_bytes=100
        ),
        worker(name="worker 1", pid=3, rss_bytes=30, limit_bytes=None, silent_seconds=0.4, allowed_bytes=100),
        row(kind="gpu", name="GPU 0", gpu_used_bytes=10, gpu_total_bytes=100),
    ]
    assert not raised(rule, quiet, [])


def test_alerts_are_logged_and_a_callback_that_raises_ends_nothing(caplog):
    def fail(alert):
        raise ZeroDivisionError("in the callback")

    book = AlertBook([alerts.worker_paused()], fail)
    with caplog.at_level(logging.WARNING, logger="curator_df.monitor"):
        book.look(1.0, [worker(is_paused=True), worker(name="worker 1", is_paused=True)])
    assert [alert.subject for alert in book.alerts] == ["worker 0", "worker 1"]
    assert "worker 0 is paused" in caplog.text
    assert "on_alert raised for the alert 'paused'; the monitor continues" in caplog.text
