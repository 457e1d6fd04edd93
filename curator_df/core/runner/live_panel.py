# SPDX-License-Identifier: Apache-2.0
"""A panel in a notebook while a run goes on: widgets where ipywidgets is installed, text where it is not."""

from __future__ import annotations

import html
import importlib.util
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from curator_df.core.runner.live import RunView
from curator_df.core.runner.progress import in_notebook
from curator_df.core.runner.session import Session

LOG = logging.getLogger("curator_df.core")

REFRESH_SECONDS = 1.0
NEARLY_FULL = 0.9
"""Share of the budget from which on its bar is red."""


@contextmanager
def live_panel(session: Session) -> Iterator[None]:
    """Show how far a run is while the block runs, in a notebook; elsewhere nothing."""
    if not in_notebook():
        yield
        return
    view, stop = RunView(session), threading.Event()
    show = widget_panel() if importlib.util.find_spec("ipywidgets") is not None else text_panel()

    def follow() -> None:
        try:
            while not stop.wait(REFRESH_SECONDS):
                show(view)
            show(view)
        except Exception:
            LOG.exception("the panel cannot be shown any more; the run goes on")

    session.watchers.append(view)
    thread = threading.Thread(target=follow, name="curator-df-panel", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        session.watchers.remove(view)


def text_panel() -> Callable[[RunView], None]:
    """Display text that is replaced; return what replaces it."""
    from IPython.display import display

    handle: Any = display({"text/plain": ""}, raw=True, display_id=True)
    return lambda view: handle.update({"text/plain": str(view)}, raw=True)


def widget_panel() -> Callable[[RunView], None]:
    """Display bars for memory and progress, and a table of the steps; return what sets them."""
    import ipywidgets as widgets
    from IPython.display import display

    wide = widgets.Layout(width="40em")
    memory = widgets.FloatProgress(description="memory", min=0.0, max=1.0, layout=wide)
    progress = widgets.FloatProgress(description="progress", min=0.0, max=1.0, layout=wide)
    held, said, steps = widgets.Label(), widgets.Label(), widgets.HTML()
    display(widgets.VBox([widgets.HBox([memory, held]), widgets.HBox([progress, said]), steps]))

    def show(view: RunView) -> None:
        now = view.memory()
        memory.value = now.held_bytes / max(now.allowed_bytes, 1)
        memory.bar_style = "danger" if memory.value > NEARLY_FULL else "info"
        progress.value = view.share_done
        held.value, said.value = str(now), view.progress()
        steps.value = funnel_table(view)

    return show


def funnel_table(view: RunView) -> str:
    """Return the steps with the rows that went on from each, as HTML."""
    rows = "".join(
        f"<tr><td style='text-align:left'>{html.escape(name)}</td><td style='text-align:right'>{rows:,}</td>"
        f"<td><progress value='{share:.4f}' max='1' style='width:20em'></progress></td></tr>"
        for name, rows, share in view.funnel()
    )
    return f"<b>{html.escape(view.title)}</b><table>{rows}</table>"
