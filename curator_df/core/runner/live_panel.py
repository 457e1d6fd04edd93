# SPDX-License-Identifier: Apache-2.0
"""Progress panel in a notebook: widgets if ipywidgets is installed, otherwise text."""

from __future__ import annotations

import html
import importlib.util
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from curator_df.core.runner.live import RunView
from curator_df.core.runner.progress import in_notebook
from curator_df.core.runner.session import Session

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
        from IPython.display import display

        self._handle: Any = display({"text/plain": ""}, raw=True, display_id=True)

    def __call__(self, view: RunView) -> None:
        """Show the current progress."""
        self._handle.update({"text/plain": str(view)}, raw=True)

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
