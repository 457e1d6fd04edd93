# SPDX-License-Identifier: Apache-2.0
"""Memory over time as an SVG image that is embedded in a page and uses its colors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from curator_df.memory.sizes import show_size
from curator_df.receipts.figures import new_figure

WIDTH, HEIGHT = 1000, 280
LEFT, RIGHT, TOP, BOTTOM = 70, 10, 18, 34
"""Margins for the labels, in the image's own units."""
LABEL = 16
"""Height of a label in the image's own units."""


def timeline_figure(
    timeline: Sequence[tuple[float, int]], marks: Sequence[float], *, allowed_bytes: int, projected_bytes: int
) -> Any:
    """Draw memory over time with matplotlib; see `timeline_picture`.

    Returns
    -------
    matplotlib.figure.Figure
        Figure with one panel.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    figure = new_figure(10, 3.3)
    axes = figure.subplots()
    seconds, held = [0.0, *(one for one, _ in timeline)], [timeline[0][1], *(most for _, most in timeline)]
    axes.fill_between(seconds, held, alpha=0.25)
    axes.plot(seconds, held, linewidth=1.4, label=f"memory, peak {show_size(max(held))}")
    axes.axhline(allowed_bytes, color="#c0392b", linewidth=1.5, label=f"budget, {show_size(allowed_bytes)}")
    projected = f"estimated peak, {show_size(projected_bytes)}"
    axes.axhline(projected_bytes, color="#7f8c8d", linestyle="--", linewidth=1.2, label=projected)
    if marks:
        whole = axes.get_xaxis_transform()
        axes.vlines(marks, 0, 1, transform=whole, color="#b0b7bd", linewidth=0.8, label="retry")
    axes.set_xlim(0, max(seconds[-1], 1e-3))
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: show_size(int(value)) if value > 0 else "0")
    axes.set_xlabel("seconds")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")
    return figure


def timeline_picture(
    timeline: Sequence[tuple[float, int]], marks: Sequence[float], *, allowed_bytes: int, projected_bytes: int
) -> str:
    """Draw the memory of a run over time.

    Parameters
    ----------
    timeline : sequence of (float, int)
        Seconds, and the peak bytes since the previous point; at least one.
    marks : sequence of float
        Seconds at which a range was retried.
    allowed_bytes, projected_bytes : int
        Budget and estimated peak, drawn as lines.

    Returns
    -------
    str
        An ``<svg>`` element.
    """
    last = max(timeline[-1][0], 1e-9)
    most = 1.05 * max(allowed_bytes, projected_bytes, *(held for _, held in timeline))

    def x(seconds: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * min(seconds, last) / last, 1)

    def y(held: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * held / most, 1)

    ground = y(0)
    points = [(x(0.0), y(timeline[0][1])), *((x(seconds), y(held)) for seconds, held in timeline)]
    outline = " ".join(f"{one},{two}" for one, two in points)
    parts = [
        *_grid(most, last, x, y),
        f"<polygon points='{LEFT},{ground} {outline} {points[-1][0]},{ground}' fill='var(--bar)' opacity='.25'/>",
        f"<polyline points='{outline}' fill='none' stroke='var(--bar)' stroke-width='1.6'/>",
        *(
            f"<line x1='{x(one)}' x2='{x(one)}' y1='{TOP}' y2='{ground}' stroke='var(--drop)' stroke-width='1'/>"
            for one in marks
        ),
        *_limits([("budget", allowed_bytes, ""), ("estimated peak", projected_bytes, "stroke-dasharray='6 4'")], y),
    ]
    if marks:
        parts.append(f"<text x='{LEFT}' y='{TOP - 6}'>vertical lines: retries</text>")
    label = f"memory over {last:.0f} seconds, peak {show_size(max(held for _, held in timeline))}"
    return f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' aria-label='{label}'>{''.join(parts)}</svg>"


def _limits(limits: Sequence[tuple[str, int, str]], y: Callable[[float], float]) -> Iterator[str]:
    """Yield lines with labels above them; if two lines are close, the label of the lower one is below it."""
    drawn: list[float] = []
    for name, held, dashes in sorted(limits, key=lambda limit: -limit[1]):
        if held <= 0:
            continue
        height = y(held)
        color = "var(--soft)" if dashes else "var(--bad)"
        yield f"<line x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{height}' y2='{height}' stroke='{color}' stroke-width='1.4' {dashes}/>"
        is_near = any(height - other < LABEL for other in drawn)
        place = round(height + LABEL - 3 if is_near else height - 4, 1)
        yield f"<text x='{WIDTH - RIGHT - 4}' y='{place}' text-anchor='end'>{name} {show_size(held)}</text>"
        drawn.append(height)


def _grid(most: float, last: float, x: Callable[[float], float], y: Callable[[float], float]) -> Iterator[str]:
    """Yield lines and labels at round numbers."""
    step = _round_step(most)
    for number in range(1, int(most / step) + 1):
        height = y(number * step)
        yield f"<line x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{height}' y2='{height}' stroke='var(--line)'/>"
        yield f"<text x='{LEFT - 8}' y='{height + 4}' text-anchor='end'>{show_size(int(number * step))}</text>"
    yield f"<line x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{y(0)}' y2='{y(0)}' stroke='var(--soft)'/>"
    step = _round_step(last)
    for number in range(int(last / step) + 1):
        label = f"{number * step:,.0f}" if step >= 1 else f"{number * step:.3g}"
        yield f"<text x='{x(number * step)}' y='{HEIGHT - BOTTOM + 18}' text-anchor='middle'>{label} s</text>"


def _round_step(most: float) -> float:
    """Return 1, 2 or 5 times a power of ten, so that there are 3 to 6 steps."""
    power = 10.0 ** math.floor(math.log10(most))
    return power * next(factor for factor in (0.2, 0.5, 1.0, 2.0) if most / (power * factor) <= 6)
