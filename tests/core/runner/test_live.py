# SPDX-License-Identifier: Apache-2.0
"""The panel of a notebook: its figures are those that the runner tells, and a real kernel shows them."""

import gzip
import json
import os
from pathlib import Path
from types import SimpleNamespace

import nbclient
import nbformat
import pytest

from curator_df.core.ranges.manifest import Manifest
from curator_df.core.ranges.step_counts import StepCounts
from curator_df.core.runner import live_panel as live
from curator_df.core.runner.events import RunEnded, RunStarted, StageStarted, TaskEnded
from curator_df.core.runner.live_panel import RunView, TextPanel, bar, live_panel
from curator_df.core.runner.session import Session
from curator_df.core.tasks.task import Job

CHECKOUT = Path(__file__).resolve().parents[2]
STEPS = [SimpleNamespace(name="normalize_unicode"), SimpleNamespace(name="keep_where")]
FORK = SimpleNamespace(branches=[SimpleNamespace(program=SimpleNamespace(steps=STEPS))], shared=2)
JOB = Job(FORK, "raise")


class Sampler:
    """Says what it is told to."""

    def __init__(self, held_bytes, peak_bytes):
        self.now, self.seen = (lambda: held_bytes), (lambda: peak_bytes)


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(live.time, "monotonic", lambda: now.seconds)
    return now


def session(sampler=None):
    return Session(None, SimpleNamespace(allowed_bytes=1_000_000_000), limits_data=False, sampler=sampler)


def done(kept):
    steps = [StepCounts(10, 10), StepCounts(10, kept)]
    return TaskEnded("write", JOB, Manifest(0, "done", rows_read=10, rows_written=kept, steps=steps), 1.0)


def test_time_left_is_that_of_the_tasks_of_this_run_and_stage(clock):
    view = RunView(session())
    view(RunStarted("out", 1, 600_000_000))
    view(StageStarted("drop: keys", JOB, 9, 0))
    clock.seconds += 50
    view(StageStarted("write", JOB, 10, 4))  # 4 by an earlier run
    assert (view.share_done, view.seconds_left) == (0.4, None)
    clock.seconds += 6
    view(done(5))
    view(done(3))
    view(TaskEnded("write", JOB, Manifest(1, "memory"), 1.0))
    view(TaskEnded("write", JOB, None, 1.0))
    assert view.done == 6
    assert view.seconds_left == pytest.approx(6 / 2 * 4)
    assert view.progress() == "write: 6 of 10, 56 s, about 12 s left"


def test_the_text_has_memory_forecast_and_the_funnel(clock):
    view = RunView(session(Sampler(500_000_000, 700_000_000)))
    view(RunStarted("out", 1, 600_000_000))
    view(StageStarted("write", JOB, 2, 0))
    view(done(5))
    assert str(view).splitlines() == [
        "out",
        "memory    ##########---------- 500 MB of 1.00 GB, 700 MB peak, 600 MB estimated peak",
        "progress  ##########---------- write: 1 of 2, 0 s, about 0 s left",
        "  read              #################### 10",
        "  normalize_unicode #################### 10",
        "  keep_where        ##########---------- 5",
        "  write             ##########---------- 5",
    ]
    view(RunEnded("finished"))
    assert view.progress() == "finished, 0 s"


def test_a_run_into_working_files_is_named_for_what_it_does(clock):
    view = RunView(session())
    view(RunStarted("/tmp/curator-df-1/found/previews/835c2d167b57/kept", 1, 600_000_000))
    assert str(view).splitlines()[0] == "preview"
    view(RunStarted("/tmp/curator-df-1/found/find_near_duplicates-3b32d2ba12a34d5b", 1, 600_000_000))
    assert str(view).splitlines()[0] == "find_near_duplicates"
    view(RunStarted("/data/found/kept", 1, 600_000_000))
    assert str(view).splitlines()[0] == "/data/found/kept"


def test_what_models_are_given_a_second_is_said(clock):
    view = RunView(session())
    view(RunStarted("out", 1, 600_000_000))
    view(StageStarted("write", JOB, 10, 0))
    clock.seconds += 4
    event = done(5)
    event.manifest.steps[1].counters |= {"documents": 10, "tokens": 6_000, "padding_tokens": 1_500, "batches": 2}
    view(event)
    view(event)
    models = "models: 5 documents and 3,000 tokens per second, 20% padding"
    assert view.progress() == f"write: 2 of 10, 4 s, about 16 s left; {models}"
    event.manifest.steps[1].counters |= {"tokens_in_batches_of_512": 900, "tokens_in_batches_of_256": 900}
    view(event)
    assert view.progress().endswith("20% padding, trying batches of 256, 512 tokens")
    event.manifest.steps[1].counters["settled_on_batches_of_512"] = 1
    event.manifest.steps[1].peaks["device_reserved_bytes"] = 2_100_000_000
    view(event)
    clock.seconds += 4
    view(RunEnded("finished"))
    assert view.progress().endswith(" tokens per second, 20% padding, batches of 512 tokens, 2.10 GB peak on a GPU")
    event.manifest.steps[1].peaks.clear()
    event.manifest.steps[1].counters = {"documents": 10, "batches": 2}  # a function of the user
    view(StageStarted("write", JOB, 10, 0))
    clock.seconds += 5
    view(event)
    assert view.progress().endswith("; models: 2 documents per second")


def test_where_nobody_measures_there_is_only_the_forecast():
    view = RunView(session())
    view(RunStarted("out", 1, 600_000_000))
    assert str(view.memory()) == "600 MB estimated peak, 1.00 GB budget"
    assert view.funnel() == []


@pytest.mark.parametrize(("share", "full"), [(-1.0, 0), (0.0, 0), (0.26, 5), (1.0, 20), (7.0, 20)])
def test_a_bar_stays_within_its_ends(share, full):
    assert bar(share) == "#" * full + "-" * (20 - full)


def test_outside_of_a_notebook_nothing_is_shown_and_nobody_listens():
    one = session()
    with live_panel(one):
        assert one.watchers == []


NOTEBOOK = """
import sys
{without}
import curator_df as cdf
docs = cdf.read_jsonl({source!r})
with cdf.start_cluster(memory="700MB", cpus=1):
    receipt = cdf.write_parquet(docs.pipe(cdf.keep_where, "n > 9"), {output!r})
receipt.rows_written
"""


def executed(tmp_path, without, monkeypatch):
    """Run a cell that curates 40 rows in 2 files; return the notebook with its widgets."""
    for number in range(2):
        with gzip.open(tmp_path / f"{number}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps({"n": n, "text": f"text {n}"}) + "\n" for n in range(20))
    inherited = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(CHECKOUT), inherited])))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    source = NOTEBOOK.format(source=str(tmp_path / "*.gz"), output=str(tmp_path / "out"), without=without)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    (cell,) = notebook.cells
    assert cell.outputs[-1]["data"]["text/plain"] == "20"
    return notebook


@pytest.mark.proof  # the text of the panel is tested above, and a notebook that shows it below
@pytest.mark.filterwarnings("ignore::DeprecationWarning:jupyter_client")
def test_a_notebook_without_ipywidgets_has_the_panel_as_text(tmp_path, monkeypatch):
    hidden = "sys.modules['ipywidgets'] = None"
    notebook = executed(tmp_path, hidden, monkeypatch)
    text = notebook.cells[0].outputs[0]["data"]["text/plain"]
    assert "of 700 MB" in text
    assert "finished" in text
    assert "  keep_where ##########---------- 20" in text


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:jupyter_client")
def test_a_notebook_with_ipywidgets_has_bars(tmp_path, monkeypatch):
    pytest.importorskip("ipywidgets", reason="ipywidgets is in the notebooks extra")
    notebook = executed(tmp_path, "", monkeypatch)
    states = [
        model["state"]
        for model in notebook.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"].values()
    ]
    bars = {state["description"]: state for state in states if state.get("_model_name") == "FloatProgressModel"}
    assert set(bars) == {"memory", "progress"}
    assert bars["progress"]["value"] == 1.0
    assert 0.1 < bars["memory"]["value"] < 1.0
    (table,) = [state["value"] for state in states if state.get("_model_name") == "HTMLModel"]
    assert "keep_where" in table
    labels = [state["value"] for state in states if state.get("_model_name") == "LabelModel"]
    assert any(label.startswith("finished") for label in labels)
    # What is saved can be looked at without a kernel.
    outputs = notebook.cells[0].outputs
    assert not any("VBox" in str(output) or "widget-view" in str(output) for output in outputs)
    (panel,) = [output["data"]["text/html"] for output in outputs if "finished" in str(output)]
    assert "keep_where" in panel and "progress: finished" in panel


def test_text_is_replaced_in_place(monkeypatch, clock):
    shown = []

    class Handle:
        def update(self, data, raw):
            shown.append(data["text/plain"])

    display = pytest.importorskip("IPython.display", reason="IPython is in the notebooks extra")
    monkeypatch.setattr(display, "display", lambda *_, **__: Handle())
    show = TextPanel()
    view = RunView(session())
    show(view)
    assert shown == [str(view)]
