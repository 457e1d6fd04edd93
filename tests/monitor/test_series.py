# SPDX-License-Identifier: Apache-2.0
"""The book of metrics, and how what the runner tells gets into it."""

import shutil
import subprocess
from types import SimpleNamespace

import pytest

from curator_df.core.ranges.manifest import Manifest
from curator_df.core.ranges.step_counts import StepCounts
from curator_df.core.runner.events import (
    Exchanged,
    Note,
    RunEnded,
    RunStarted,
    StageStarted,
    TaskEnded,
    run_events,
    stage_name,
)
from curator_df.core.runner.session import Session
from curator_df.core.tasks.counts_by_step import counts_by_step
from curator_df.monitor import series
from curator_df.monitor.metrics_server import OWN_BYTES, RunSeries, worker_book
from curator_df.monitor.series import METRICS, SeriesBook
from curator_df.monitor.workers import WorkerReading
from tests.receipts.receipts import EXCHANGE

prometheus_client = pytest.importorskip("prometheus_client", reason="prometheus-client is in the monitor extra")


class Answer:
    """A registry's collector."""

    def __init__(self, book):
        self.collect = book.families
        self.describe = list


def exposed(book):
    registry = prometheus_client.CollectorRegistry()
    registry.register(Answer(book))
    return prometheus_client.generate_latest(registry).decode()


def session():
    layout = SimpleNamespace(allowed_bytes=1_000_000_000, workers=2)
    return Session(client=None, layout=layout, limits_data=False)


def test_counters_add_up_gauges_are_replaced_and_histograms_are_cumulative():
    book = SeriesBook()
    book.add("curator_df_retries_total", 2, "memory")
    book.add("curator_df_retries_total", 3, "memory")
    book.set("curator_df_runs_active", 4)
    book.set("curator_df_runs_active", 1)
    book.observe("curator_df_task_seconds", 0.2, "write")
    book.observe("curator_df_task_seconds", 0.25, "write")
    book.observe("curator_df_task_seconds", 1_000, "write")
    lines = exposed(book).splitlines()
    assert 'curator_df_retries_total{cause="memory"} 5.0' in lines
    assert "curator_df_runs_active 1.0" in lines
    buckets = [line for line in lines if line.startswith("curator_df_task_seconds_bucket")]
    assert buckets[:3] == [
        f'curator_df_task_seconds_bucket{{le="{bound}",stage="write"}} {count}'
        for bound, count in ((0.1, 0.0), (0.25, 2.0), (0.5, 2.0))
    ]
    assert buckets[-1] == 'curator_df_task_seconds_bucket{le="+Inf",stage="write"} 3.0'
    assert 'curator_df_task_seconds_count{stage="write"} 3.0' in lines
    assert 'curator_df_task_seconds_sum{stage="write"} 1000.45' in lines


def test_a_peak_stays_where_it_was():
    book = SeriesBook()
    for held_bytes in (5, 9, 7):
        book.raise_to("curator_df_step_peak_bytes", held_bytes, "write", "01", "add_class", "process_peak_bytes")
    assert book.value("curator_df_step_peak_bytes", "write", "01", "add_class", "process_peak_bytes") == 9


def test_labels_that_never_end_are_counted_together(monkeypatch):
    monkeypatch.setattr(series, "MOST_SERIES", 3)
    book = SeriesBook()
    for number in range(10):
        book.add("curator_df_step_counted_total", 1, "write", "01", "mine", f"counter {number}")
    assert exposed(book).count("curator_df_step_counted_total{") == 4
    assert book.value("curator_df_step_counted_total", *["other"] * 4) == 7
    assert book.value("curator_df_step_counted_total", "write", "01", "mine", "counter 0") == 1


def test_a_name_that_is_not_listed_is_an_error():
    with pytest.raises(KeyError):
        SeriesBook().add("curator_df_rows", 1)


def every_metric():
    book = SeriesBook()
    for metric in METRICS.values():
        labels = [f"a {label}" for label in metric.labels]
        if metric.kind == "histogram":
            book.observe(metric.name, 1.0, *labels)
        elif metric.kind == "counter":
            book.add(metric.name, 1, *labels)
        else:
            book.set(metric.name, 1, *labels)
    return book


def test_every_metric_is_served_with_its_labels():
    text = exposed(every_metric())
    for metric in METRICS.values():
        suffix = "_count" if metric.kind == "histogram" else ""
        labels = ",".join(f'{label}="a {label}"' for label in sorted(metric.labels))
        assert f"\n{metric.name}{suffix}{f'{{{labels}}}' if labels else ''} 1.0\n" in text
        assert metric.kind != "counter" or metric.name.endswith("_total")


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool, of the package prometheus")
def test_names_and_help_texts_are_as_prometheus_wants_them():
    text = exposed(every_metric())
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_retries_leaks_comparisons_and_ends_of_runs_are_counted():
    series_of = RunSeries(session())
    value = series_of.book.value
    assert value("curator_df_memory_allowed_bytes") == 1_000_000_000
    assert value("curator_df_workers_expected") == 2
    for event in (
        RunStarted("out", 40_000, 800),
        Note("retry", "range 3 again: memory", "memory"),
        Note("leak", "a worker", "keep_where"),
        Exchanged(EXCHANGE),
    ):
        series_of(event)
    assert value("curator_df_runs_active") == 1
    assert value("curator_df_run_input_bytes") == 40_000
    assert value("curator_df_memory_projected_bytes") == 800
    assert value("curator_df_retries_total", "memory") == 1
    assert value("curator_df_leaks_total", "keep_where") == 1
    assert value("curator_df_exchange_bytes_total", EXCHANGE.step, "key") == EXCHANGE.key_bytes
    assert value("curator_df_exchange_skew_ratio", EXCHANGE.step) == EXCHANGE.skew
    series_of(RunEnded("failed"))
    assert (value("curator_df_runs_active"), value("curator_df_runs_total", "failed")) == (0, 1)


def test_tasks_that_are_not_done_count_as_errors_of_the_step_in_which_they_ended():
    series_of = RunSeries(session())
    series_of(StageStarted("write", None, 10, 4))
    series_of(TaskEnded("write", None, Manifest(0, outcome="memory", step="keep_profile"), 2.0))
    series_of(TaskEnded("write", None, None, 3.0))
    series_of(TaskEnded("write", None, Manifest(0, outcome="done"), 1.0))
    value = series_of.book.value
    assert value("curator_df_task_errors_total", "write", "keep_profile", "memory") == 1
    assert value("curator_df_task_errors_total", "write", "", "worker lost") == 1
    assert value("curator_df_tasks_total", "write", "done") == 1
    assert (value("curator_df_stage_tasks", "write"), value("curator_df_stage_tasks_done", "write")) == (10, 5)
    assert value("curator_df_task_seconds", "write") == 6.0


def branch(*names):
    return SimpleNamespace(program=SimpleNamespace(steps=[SimpleNamespace(name=name) for name in names]))


def test_steps_that_outputs_share_are_counted_once():
    job = SimpleNamespace(fork=SimpleNamespace(branches=[branch("clean", "long"), branch("clean", "short")], shared=1))
    shared = StepCounts(10, 8, 1.0, bytes_in=100, bytes_out=80)
    other = Manifest(0, rows_read=10, rows_written=3, steps=[shared, StepCounts(8, 3)], branch=1)
    manifest = Manifest(0, rows_read=10, rows_written=5, steps=[shared, StepCounts(8, 5, bytes_out=50)], others=[other])
    found = [(place, name, tally.rows_in, tally.rows_out) for place, name, tally in counts_by_step(job, manifest)]
    assert found == [
        (0, "read", 10, 10),
        (1, "clean", 10, 8),
        (2, "long", 8, 5),
        (3, "write", 5, 5),
        (2, "short", 8, 3),
        (3, "write", 3, 3),
    ]


def test_what_goes_wrong_in_counting_is_logged_once_and_ends_nothing(caplog):
    series_of = RunSeries(session())
    series_of(Exchanged(None))
    series_of(Exchanged(None))
    assert [record.getMessage() for record in caplog.records] == [
        "metrics: Exchanged could not be counted; the run continues"
    ]


@pytest.mark.parametrize(
    ("raised", "outcome"), [(None, "finished"), (ValueError, "failed"), (KeyboardInterrupt, "interrupted")]
)
def test_how_a_run_ended_is_told(raised, outcome):
    one, told = session(), []
    one.watchers.append(told.append)
    started = RunStarted("out", 1, 2)
    try:
        with run_events(one, started):
            if raised is not None:
                raise raised
    except (ValueError, KeyboardInterrupt):
        assert raised is not None
    assert told == [started, RunEnded(outcome)]


def test_iterations_of_a_stage_have_one_name():
    assert [stage_name(title) for title in ("bands, iteration 12", "pairs")] == ["bands", "pairs"]


def test_what_a_worker_cannot_tell_is_not_served():
    figures = dict.fromkeys(OWN_BYTES.values(), None) | {"pss_bytes": 7}
    known = {"name": "0", "host": "here", "pid": 1, "rss_bytes": 2, "managed_bytes": 0, "spilled_bytes": 0}
    reading = WorkerReading(**known, **figures, is_paused=False, gpus=())
    assert [family.name for family in worker_book(reading).families()] == ["curator_df_worker_pss_bytes"]
