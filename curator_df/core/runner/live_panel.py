# SPDX-License-Identifier: Apache-2.0
"""Progress panel in a notebook: widgets if ipywidgets is installed, otherwise text."""

from __future__ import annotations

import html
import importlib.util
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from curator_df.core.ranges.manifest import Manifest
from curator_df.core.runner.events import FINAL_STAGE, Event, RunEnded, RunStarted, StageStarted, TaskEnded
from curator_df.core.runner.progress import CellLine, in_notebook
from curator_df.core.runner.session import Session
from curator_df.core.tasks.counts_by_step import counts_by_step
from curator_df.core.tasks.task import Job
from curator_df.files.working_files import title_of
from curator_df.memory.sizes import show_size
from curator_df.receipts.model_figures import SETTLED, TRIED_TOKENS, sizes_of

BAR_CHARACTERS = 20
SIZES = (SETTLED, TRIED_TOKENS)
"""Prefixes of counters of batches of one size."""


@dataclass(frozen=True)
class MemoryView:
    """Memory of the whole process tree."""

    held_bytes: int
    """Current memory in bytes."""
    peak_bytes: int
    """Peak since the run began, in bytes."""
    forecast_bytes: int
    """Estimated peak of the plan, in bytes."""
    allowed_bytes: int
    """Memory budget, in bytes."""

    def __str__(self) -> str:
        allowed, forecast = show_size(self.allowed_bytes), show_size(self.forecast_bytes)
        if not self.held_bytes:  # workers on other machines: their sum is not measured
            return f"{forecast} estimated peak, {allowed} budget"
        held, peak = show_size(self.held_bytes), show_size(self.peak_bytes)
        return f"{held} of {allowed}, {peak} peak, {forecast} estimated peak"


class RunView:
    """Watcher of a `Session` that tracks the progress of its latest run."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._began = self._stage_began = time.monotonic()
        self._resumed = self._forecast_bytes = 0
        self._ended = False
        self._peak_bytes = 0
        self._rows: dict[tuple[int, str], int] = {}
        self._read = {"documents": 0, "tokens": 0}
        self._padding_tokens = self._device_bytes = 0
        self._sizes: Counter[str] = Counter()
        self._models_seconds = 0.0
        self.title = ""
        self.stage, self.tasks, self.done = "", 0, 0
        """Purpose, total number and finished number of the running tasks."""

    def __call__(self, event: Event) -> None:
        """Process an event of the runner."""
        match event:
            case RunStarted():
                self.title, self._forecast_bytes = title_of(event.output), event.projected_bytes
            case StageStarted():
                self.stage, self.tasks, self.done = event.stage, event.tasks, event.done
                self._resumed, self._stage_began = event.done, time.monotonic()
                self._read = dict.fromkeys(self._read, 0)
                self._padding_tokens = self._device_bytes = 0
                self._sizes.clear()
            case TaskEnded() if event.manifest is not None and event.manifest.outcome == "done":
                self.done += 1
                if isinstance(event.job, Job):
                    self._count_models(event.job, event.manifest)
                if event.stage == FINAL_STAGE and isinstance(event.job, Job):
                    for place, name, tally in counts_by_step(event.job, event.manifest):
                        self._rows[place, name] = self._rows.get((place, name), 0) + tally.rows_out
            case RunEnded():
                self.stage, self._ended = event.outcome, True

    def _count_models(self, job: Job, manifest: Manifest) -> None:
        for _, _, tally in counts_by_step(job, manifest):
            if "documents" in tally.counters:
                self._sizes.update({name: n for name, n in tally.counters.items() if name.startswith(SIZES)})
                for name in self._read:
                    self._read[name] += tally.counters.get(name, 0)
                self._padding_tokens += tally.counters.get("padding_tokens", 0)
                self._device_bytes = max(self._device_bytes, tally.peaks.get("device_reserved_bytes", 0))
                self._models_seconds = time.monotonic() - self._stage_began

    @property
    def share_done(self) -> float:
        """Fraction of the tasks of this stage that are finished, 0 to 1."""
        return self.done / self.tasks if self.tasks else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Remaining seconds of this stage, from the duration of the tasks that this run finished; None while there are none."""
        here = self.done - self._resumed
        if self._ended or here <= 0:
            return None
        return (time.monotonic() - self._stage_began) / here * (self.tasks - self.done)

    def memory(self) -> MemoryView:
        """Return the current memory."""
        sampler, allowed_bytes = self._session.sampler, self._session.layout.allowed_bytes
        held_bytes, peak_bytes = (0, 0) if sampler is None else (sampler.now(), sampler.seen())
        self._peak_bytes = max(self._peak_bytes, peak_bytes)
        return MemoryView(held_bytes, self._peak_bytes, self._forecast_bytes, allowed_bytes)

    def funnel(self) -> list[tuple[str, int, float]]:
        """Return, for each step of the last pass, its name, the rows that it passed on and their fraction of the rows read."""
        rows_out = sorted(self._rows.copy().items())  # the run continues in another thread
        read = rows_out[0][1] if rows_out else 0
        return [(name, rows, rows / max(read, 1)) for (_, name), rows in rows_out]

    def progress(self) -> str:
        """Return a description of the progress of this stage."""
        seconds, left = time.monotonic() - self._began, self.seconds_left
        said = (
            f"{self.stage}, {seconds:,.0f} s"
            if self._ended
            else f"{self.stage}: {self.done:,} of {self.tasks:,}, {seconds:,.0f} s"
        )
        said += "" if left is None else f", about {left:,.0f} s left"
        return f"{said}{self._models_rate()}"

    def _models_rate(self) -> str:
        """Return a description of the models' throughput in this stage; empty without models."""
        rates = [(number / max(self._models_seconds, 1e-9), name) for name, number in self._read.items() if number]
        said = " and ".join(f"{rate:,.0f} {name}" for rate, name in rates)
        given = self._read["tokens"] + self._padding_tokens
        more = f", {self._padding_tokens / given:.0%} padding" if given else ""
        tried, taken = sizes_of(self._sizes)
        if taken is not None:
            more += f", batches of {taken:,} tokens"
        elif tried:
            more += f", trying batches of {', '.join(f'{size:,}' for size in tried)} tokens"
        more += f", {show_size(self._device_bytes)} peak on a GPU" if self._device_bytes else ""
        return f"; models: {said} per second{more}" if said else ""

    def __str__(self) -> str:
        memory = self.memory()
        lines = [
            self.title,
            f"memory    {bar(memory.held_bytes / max(memory.allowed_bytes, 1))} {memory}",
            f"progress  {bar(self.share_done)} {self.progress()}",
        ]
        funnel = self.funnel()
        width = max((len(name) for name, _, _ in funnel), default=0)
        lines += [f"  {name:<{width}} {bar(share)} {rows:,}" for name, rows, share in funnel]
        return "\n".join(lines)


def bar(share: float) -> str:
    """Return a share as a bar of text.

    Examples
    --------
    >>> bar(0.5)
    '##########----------'
    """
    full = round(min(max(share, 0.0), 1.0) * BAR_CHARACTERS)
    return "#" * full + "-" * (BAR_CHARACTERS - full)


LOG = logging.getLogger("curator_df.core")

REFRESH_SECONDS = 1.0
NEARLY_FULL = 0.9
"""Fraction of the budget above which its bar is red."""


@contextmanager
def live_panel(session: Session) -> Iterator[None]:
    """Show the progress of a run while the block runs, in a notebook; do nothing elsewhere."""
    if not in_notebook():
        yield
        return
    view, stop = RunView(session), threading.Event()
    show = WidgetPanel() if importlib.util.find_spec("ipywidgets") is not None else TextPanel()

    def follow() -> None:
        try:
            while not stop.wait(REFRESH_SECONDS):
                show(view)
            show(view)
        except Exception:
            LOG.exception("the panel can no longer be shown; the run continues")

    session.watchers.append(view)
    thread = threading.Thread(target=follow, name="curator-df-panel", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        session.watchers.remove(view)
        show.end(view)


class TextPanel:
    """Text in the output of a cell, which is updated during the run."""

    def __init__(self) -> None:
        self._line = CellLine()
        self._line.show("")

    def __call__(self, view: RunView) -> None:
        """Show the current progress."""
        self._line.show(str(view))

    def end(self, view: RunView) -> None:
        """Keep the last text, which is all that a saved notebook needs."""


class WidgetPanel:
    """Bars for memory and progress, and a table of the steps, in the output of a cell."""

    def __init__(self) -> None:
        import ipywidgets as widgets
        from IPython.display import display

        wide = widgets.Layout(width="40em")
        self._memory = widgets.FloatProgress(description="memory", min=0.0, max=1.0, layout=wide)
        self._progress = widgets.FloatProgress(description="progress", min=0.0, max=1.0, layout=wide)
        self._held, self._said, self._steps = widgets.Label(), widgets.Label(), widgets.HTML()
        bars = [widgets.HBox([self._memory, self._held]), widgets.HBox([self._progress, self._said])]
        self._box = widgets.VBox([*bars, self._steps])
        self._handle: Any = display(self._box, display_id=True)

    def __call__(self, view: RunView) -> None:
        """Show the current progress."""
        now = view.memory()
        self._memory.value = now.held_bytes / max(now.allowed_bytes, 1)
        self._memory.bar_style = "danger" if self._memory.value > NEARLY_FULL else "info"
        self._progress.value = view.share_done
        self._held.value, self._said.value = str(now), view.progress()
        self._steps.value = funnel_table(view)

    def end(self, view: RunView) -> None:
        """Replace the widgets with plain HTML: a saved notebook has no kernel to draw them."""
        lines = (("memory", view.memory()), ("progress", view.progress()))
        said = "".join(f"<div>{name}: {html.escape(str(value))}</div>" for name, value in lines)
        self._handle.update({"text/html": f"{funnel_table(view)}{said}", "text/plain": str(view)}, raw=True)
        for widget in (*self._box.children, self._box):
            widget.close()


def funnel_table(view: RunView) -> str:
    """Return the steps with the number of rows that each passed on, as HTML."""
    rows = "".join(
        f"<tr><td style='text-align:left'>{html.escape(name)}</td><td style='text-align:right'>{rows:,}</td>"
        f"<td><progress value='{share:.4f}' max='1' style='width:20em'></progress></td></tr>"
        for name, rows, share in view.funnel()
    )
    return f"<b>{html.escape(view.title)}</b><table>{rows}</table>"
