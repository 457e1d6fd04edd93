# SPDX-License-Identifier: Apache-2.0
"""Parts of drawings as HTML, for notebooks and report pages: bars of memory, and the steps of a pass.

Styles are inline and colors are translucent, so that a drawing can be read on a light and on a dark page. Where a viewer
removes styles, the text remains.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

from curator_df.memory.sizes import show_size

BASELINE, TASKS, STEPS = "rgba(120,130,140,.75)", "rgba(59,130,182,.85)", "rgba(217,139,58,.85)"
"""Colors of memory: of processes before any work, of tasks, and of data that steps keep."""
OVER = "rgba(192,57,43,.9)"
"""Color of memory beyond the budget."""
EMPTY = "rgba(127,127,127,.16)"
"""Color of an empty bar."""


def bar(parts: Sequence[tuple[int, str]], widest_bytes: int) -> str:
    """Draw sizes one after the other in a bar.

    Parameters
    ----------
    parts : sequence of (int, str)
        Bytes and color of each size.
    widest_bytes : int
        Bytes of the whole bar.

    Returns
    -------
    str
        A ``<div>`` element.
    """
    filled = "".join(
        f"<div style='width:{100 * held / max(widest_bytes, 1):.1f}%;background:{color}'></div>"
        for held, color in parts
    )
    return f"<div style='display:flex;height:1.1em;border-radius:4px;overflow:hidden;background:{EMPTY}'>{filled}</div>"


def budget_drawing(title: str, parts: Sequence[tuple[int, str, str]], allowed_bytes: int) -> str:
    """Draw what fills a memory budget, under a title: bytes, color and name of each part, and what is free."""
    free_bytes = max(0, allowed_bytes - sum(held for held, _, _ in parts))
    shown = [*(part for part in parts if part[0]), (free_bytes, EMPTY, "free")]
    names = "".join(
        "<span style='margin-right:1.4em;white-space:nowrap'><span style='display:inline-block;width:.8em;height:.8em;"
        f"border-radius:2px;margin-right:.35em;background:{color}'></span>{html.escape(name)} {show_size(held)}</span> "
        for held, color, name in shown
    )
    filled = bar([(held, color) for held, color, _ in shown[:-1]], allowed_bytes)
    return (
        f"<div style='margin-bottom:.25em'><b>{html.escape(title)}</b></div> {filled}"
        f"<div style='font-size:.85em;margin:.25em 0 .7em'>{names}</div>"
    )


def pass_drawing(title: str, needs: str, steps: Sequence[str]) -> str:
    """Draw a pass over the input: its title, the memory that it needs, and its steps from left to right."""
    drawn = " → ".join(
        f"<span style='display:inline-block;padding:0 .5em;margin:.1em 0;border-radius:9px;background:{EMPTY}'>"
        f"{html.escape(name)}</span>"
        for name in steps
    )
    return (
        "<div style='margin:.45em 0;padding-left:.7em;border-left:3px solid rgba(59,130,182,.6);line-height:1.7;"
        f"text-align:left'><div><b>{html.escape(title)}</b> <span style='opacity:.7'>({html.escape(needs)})</span></div> "
        f"{drawn}</div>"
    )
