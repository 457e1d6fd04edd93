# SPDX-License-Identifier: Apache-2.0
"""The command line and the page that the benchmarks of runs on GPUs share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from curator_df.memory.gpus import read_gpus


def options(description: str | None, corpus: str) -> argparse.ArgumentParser:
    """Return what is asked about the input, and about what each part of a run may take."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", help=corpus)
    parser.add_argument("--memory", default=None, help="of the host, for each part")
    parser.add_argument("--gpus", type=int, default=len(read_gpus()) or 1, help="how many; all by default")
    parser.add_argument("--device-memory", default=None, help="of each GPU")
    parser.add_argument("--folder", default=None, help="where output and temporary files go; the system's by default")
    parser.add_argument("--page", type=Path, help="where to write the results as Markdown")
    return parser


def said_on(page: list[str]) -> Callable[[str], None]:
    """Return a function that prints a line and puts it on the page."""

    def say(line: str) -> None:
        print(line, flush=True)
        page.append(line)

    return say
