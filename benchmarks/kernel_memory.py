# SPDX-License-Identifier: Apache-2.0
"""Peak extra memory of each operator's kernel as a multiple of the block: the source of the ``peak_factor`` constants.

    ARROW_DEFAULT_MEMORY_POOL=system python benchmarks/kernel_memory.py

Each figure is from a process of its own: imports, compiled kernels and one call on a small block come first, then the
high-water mark is reset, the kernel is called once on a block of 32 MB of text, and its result is still held when the
mark is read. ``rows of 100 bytes`` shows what a row costs whatever its text, ``punctuation, one row`` what words of one byte do.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from curator_df.core.limits import peak_of_call
from curator_df.core.resources import NO_LIMITS
from curator_df.kernels.unicode_repair import RepairSettings
from curator_df.models.batches import BatchCounts
from curator_df.models.prompt_scores import add_prompt_scores_block
from curator_df.models.prompt_tasks import SCORES, PromptTasks
from curator_df.ops.lines import remove_c4_lines_block
from curator_df.ops.profile import add_profile_block, keep_profile_block
from curator_df.ops.unicode import normalize_unicode_block
from curator_df.ops.where import keep_where_block
from curator_df.profiles import DATATROVE_C4, DATATROVE_FINEWEB, DATATROVE_GOPHER_QUALITY, DATATROVE_GOPHER_REPETITION

BLOCK_BYTES = 32_000_000
PROSE = "It was the best of times, and it was the worst of times; that we have to be with all of it.\n"
# Everything but a missing text passes, so that nearly all rows are copied: the worst case of a filter.
LOOSE = DATATROVE_GOPHER_QUALITY.replace(
    gopher_short_doc=0,
    gopher_long_doc=10**9,
    gopher_below_avg_threshold=0,
    gopher_above_avg_threshold=10**9,
    gopher_below_alpha_threshold=0,
    gopher_enough_stop_words=0,
)
EVERYTHING = DATATROVE_GOPHER_REPETITION + LOOSE + DATATROVE_FINEWEB + DATATROVE_C4
EVERYTHING = EVERYTHING.replace(**{rule.reason: {"<": 1e9, "<=": 1e9, ">=": 0}[rule.keep] for rule in EVERYTHING.rules})

SHAPES: dict[str, tuple[str, int]] = {
    "prose": (PROSE * 20, BLOCK_BYTES),
    "one-letter words": ("a b c d e f g h i\n" * 100, BLOCK_BYTES),
    "CJK": ("我们认为这些真理是不言而喻的。\n" * 40, BLOCK_BYTES),
    "one huge row": (PROSE * (BLOCK_BYTES // len(PROSE)), 1),
    "one-letter words, one row": ("a b c d e f g h i\n" * (BLOCK_BYTES // 18), 1),
    "punctuation, one row": ("?!" * (BLOCK_BYTES // 2), 1),
    "rows of 100 bytes": (PROSE + "short.\n", BLOCK_BYTES),
    "prose with CRLF": (PROSE.replace("\n", "\r\n") * 20, BLOCK_BYTES),
    "mojibake": ("cafÃ© noir, s'il vous plaît\n" * 60, BLOCK_BYTES),
    "one line of mojibake": ("cafÃ© " * (BLOCK_BYTES // 8), 1),
}

Kernel = Callable[[Any], Any]
TASKS = PromptTasks(("Text Generation",) * 12, ((0.0, 1.0, 2.0, 3.0),) * len(SCORES), (1.0,) * len(SCORES))
"""As many as NVIDIA's classifier has, with the longest names."""


class NoPrompts:
    """A model that makes numbers at once."""

    def run(self, texts: Any, keep: Any) -> BatchCounts:
        """Give the same numbers for every text."""
        places = np.flatnonzero(texts.is_valid().to_numpy())
        for start in range(0, len(places), 128):
            chosen = places[start : start + 128]
            keep(chosen, np.ones((len(chosen), 12 + 4 * len(SCORES)), dtype=np.float32))
        return BatchCounts(documents=len(places))


KERNELS: dict[str, Kernel] = {
    "keep_profile": lambda block: keep_profile_block(block, profile=LOOSE, text="text", add_metrics=False),
    "keep_profile, metrics": lambda block: keep_profile_block(block, profile=LOOSE, text="text", add_metrics=True),
    "add_profile": lambda block: add_profile_block(
        block, profile=LOOSE, text="text", reason="reason", add_metrics=True
    ),
    "keep_profile, repetition": lambda block: keep_profile_block(
        block, profile=EVERYTHING, text="text", add_metrics=False
    ),
    "keep_profile, ICU's words": lambda block: keep_profile_block(
        block, profile=EVERYTHING.replace(words="icu", stop_words=("de", "la")), text="text", add_metrics=False
    ),
    "keep_profile, datatrove's": lambda block: keep_profile_block(
        block, profile=EVERYTHING.replace(words="datatrove"), text="text", add_metrics=False
    ),
    "remove_c4_lines": lambda block: remove_c4_lines_block(block, text="text", require_punctuation=False),
    "keep_where, nearly all": lambda block: keep_where_block(block, predicate="number > 0", reason="x"),
    "add_prompt_scores": lambda block: add_prompt_scores_block(
        block, text="text", prefix="", model=NoPrompts(), tasks=TASKS, resources=NO_LIMITS
    ),
    "normalize_unicode": lambda block: normalize_unicode_block(block, text="text", settings=RepairSettings()),
}


def make_block(shape: str, bytes_wanted: int) -> pd.DataFrame:
    """Make a block of about that many bytes of text, in one Arrow chunk, with a row to drop at its start."""
    text, times = SHAPES[shape]
    rows = 1 if times == 1 else max(bytes_wanted // len(text.encode()), 1)
    if times == 1:
        text = text[: max(int(len(text) * bytes_wanted / BLOCK_BYTES), 1)]
    column = pd.Series([None] + [text] * rows, dtype="string[pyarrow]")
    return pd.DataFrame({"text": column, "number": range(rows + 1)})


def measure_one(kernel: str, shape: str) -> float:
    """Return peak extra bytes as a multiple of the text's bytes."""
    KERNELS[kernel](make_block(shape, 100_000))
    block = make_block(shape, BLOCK_BYTES)
    extra_bytes, _ = peak_of_call(lambda: KERNELS[kernel](block))
    return extra_bytes / BLOCK_BYTES


def main() -> None:
    """Print a table, one process a cell; of one kernel if its name is given."""
    if len(sys.argv) == 3 and sys.argv[2] in SHAPES:
        print(measure_one(*sys.argv[1:]))
        return
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
    print(f"{'kernel':28}" + "".join(f"{shape:>26}" for shape in SHAPES))
    for kernel in sys.argv[1:] or KERNELS:
        cells = [
            float(subprocess.check_output([sys.executable, __file__, kernel, shape], env=environment, text=True))
            for shape in SHAPES
        ]
        print(f"{kernel:28}" + "".join(f"{cell:26.2f}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
