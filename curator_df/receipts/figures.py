# SPDX-License-Identifier: Apache-2.0
"""Make empty Matplotlib figures that a notebook displays as images, and convert figures to PNG. Callers draw into them."""

from __future__ import annotations

import functools
import io
from typing import Any

from curator_df.extras import missing_extra

DPI = 90


def new_figure(width: float, height: float) -> Any:
    """Return an empty ``matplotlib.figure.Figure`` with a size in inches.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    try:
        # pyplot is not used: its figures are global, and stay until they are closed.
        from matplotlib.figure import Figure
    except ImportError as exc:
        raise missing_extra("drawing", "matplotlib", "monitor") from exc
    figure: Any = Figure(figsize=(width, height), layout="constrained")
    # IPython shows a figure as text until pyplot has been imported; after that, its own display takes precedence over this.
    figure._repr_png_ = functools.partial(png_of, figure)
    return figure


def png_of(figure: Any) -> bytes:
    """Return a figure as a PNG image."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=DPI)
    return stream.getvalue()
