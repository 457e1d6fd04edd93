# SPDX-License-Identifier: Apache-2.0
"""Peak extra memory of operators' kernels as a multiple of the block, beside what they state (``peak_factor``).

    python benchmarks/kernel_memory.py                                      # all of them: minutes
    python benchmarks/kernel_memory.py "keep_profile, DCLM" --shape prose   # a part

Each figure is from a fork of a process that is warm, with malloc set as in workers: imports and compiled kernels come before
it, and one call on a small block after it. Then the high-water mark is reset, the kernel is called once on a block of 32 MB
of text, and its result is still held when the mark is read. ``rows of 100 bytes`` shows what a row costs whatever its text,
``punctuation, one row`` what words of one byte do. What a kernel states beside its factor (``fixed_bytes``) is taken off. A
figure above the factor has a star, and the program then ends with 1. Every operator is measured so by
``tests/contracts/test_memory.py``, on blocks of 8 MB.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.dataframe.dask_expr._expr import MapPartitions

import curator_df as cdf
from curator_df.cluster.preload import prepare_process
from curator_df.core.ranges.blocks import BlockKernel
from curator_df.core.ranges.price import Price
from curator_df.memory.limits import peak_of_call
from curator_df.memory.resources import NO_LIMITS
from curator_df.models.batches import BatchCounts
from curator_df.models.classifiers import prompt_scores
from curator_df.models.classifiers.prompt_scores import SCORES, PromptTasks
from curator_df.ops.filters.rules import Profile
from curator_df.profiles import (
    DATATROVE_C4,
    DATATROVE_FINEWEB,
    DATATROVE_GOPHER_QUALITY,
    DATATROVE_GOPHER_REPETITION,
    DCLM_QUALITY,
    DCLM_REPETITION,
    DOLMA_C4,
    DOLMA_GOPHER_V1,
    DOLMA_GOPHER_V2,
    NEMO_CODE,
    NEMO_ENGLISH,
)

BLOCK_BYTES = 32_000_000
PROSE = "It was the best of times, and it was the worst of times; that we have to be with all of it.\n"


def passing(profile: Profile) -> Profile:
    """Return a profile that drops nothing but a missing text, so that nearly all rows are copied: the worst case of a filter."""
    return profile.replace(**{rule.reason: {"<": 1e9, "<=": 1e9, ">=": 0}[rule.comparison] for rule in profile.rules})


QUALITY = passing(DATATROVE_GOPHER_QUALITY).replace(words="whitespace")
EVERYTHING = passing(DATATROVE_GOPHER_REPETITION + DATATROVE_GOPHER_QUALITY + DATATROVE_FINEWEB + DATATROVE_C4)
EVERYTHING = EVERYTHING.replace(words="whitespace")

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
    "addresses": ("<p>a@b.co c@d.co 8.8.8.8\n" * 40, BLOCK_BYTES),
}
ALLOWANCE_BYTES = 1_000_000
"""What a call may hold whatever the block, as in ``tests/contracts/test_memory.py``."""

Apply = Callable[[Any], Any]
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


KERNELS: dict[str, Apply] = {
    "keep_profile": lambda df: cdf.keep_profile(df, QUALITY),
    "keep_profile, metrics": lambda df: cdf.keep_profile(df, QUALITY, add_metrics=True),
    "add_profile": lambda df: cdf.add_profile(df, QUALITY),
    "keep_profile, repetition": lambda df: cdf.keep_profile(df, EVERYTHING),
    "keep_profile, ICU's words": lambda df: cdf.keep_profile(
        df, EVERYTHING.replace(words="icu", stop_words=("de", "la"))
    ),
    "keep_profile, datatrove's": lambda df: cdf.keep_profile(df, EVERYTHING.replace(words="datatrove")),
    "keep_profile, NeMo": lambda df: cdf.keep_profile(df, passing(NEMO_ENGLISH + NEMO_CODE)),
    "keep_profile, dolma": lambda df: cdf.keep_profile(df, passing(DOLMA_GOPHER_V1 + DOLMA_C4)),
    "keep_profile, dolma's 2nd": lambda df: cdf.keep_profile(df, passing(DOLMA_GOPHER_V2)),
    "keep_profile, DCLM": lambda df: cdf.keep_profile(df, passing(DCLM_QUALITY + DCLM_REPETITION)),
    "remove_c4_lines": lambda df: cdf.remove_c4_lines(df, require_punctuation=False),
    "keep_where, nearly all": lambda df: cdf.keep_where(df, "number > 0"),
    "add_prompt_scores": lambda df: dd.map_partitions(PROMPT_SCORES, df, meta=df._meta, enforce_metadata=False),
    "normalize_unicode": cdf.normalize_unicode,
    "normalize_whitespace": cdf.normalize_whitespace,
    "remove_markdown": cdf.remove_markdown,
    "redact_pii": cdf.redact_pii,
    "redact_pii, hash": lambda df: cdf.redact_pii(df, replacement="hash"),
}
PROMPT_SCORES = BlockKernel(
    "add_prompt_scores",
    prompt_scores.add_prompt_scores_block,
    {"text": "text", "prefix": "", "model": NoPrompts(), "tasks": TASKS, "resources": NO_LIMITS},
    price=Price(prompt_scores.PEAK_FACTOR),
)
"""The kernel without a model: what that costs is planned beside it."""


def kernel_of(name: str) -> BlockKernel:
    """Return the kernel that an operator adds to a table."""
    with dask.config.set({"dataframe.convert-string": False}):
        df = KERNELS[name](
            dd.from_map(lambda _: make_block("prose", 10_000), [0], meta=make_block("prose", 10_000).iloc[:0])
        )
    [kernel] = [
        node.operand("func")
        for node in df.expr.walk()
        if isinstance(node, MapPartitions) and isinstance(node.operand("func"), BlockKernel)
    ]
    return kernel


def make_block(shape: str, bytes_wanted: int) -> pd.DataFrame:
    """Make a block of about that many bytes of text, in one Arrow chunk, with a row to drop at its start."""
    text, times = SHAPES[shape]
    rows = 1 if times == 1 else max(bytes_wanted // len(text.encode()), 1)
    if times == 1:
        text = text[: max(int(len(text) * bytes_wanted / BLOCK_BYTES), 1)]
    column = pd.Series([None] + [text] * rows, dtype="string[pyarrow]")
    return pd.DataFrame({"text": column, "number": range(rows + 1)})


def measure_one(kernel: BlockKernel, shape: str) -> float:
    """Return peak extra bytes, less what is stated whatever the block, as a multiple of the block's bytes."""
    kernel.run(make_block(shape, 100_000))
    block = make_block(shape, BLOCK_BYTES)
    held_bytes = int(block.memory_usage(index=False).sum())
    extra_bytes, _ = peak_of_call(lambda: kernel.run(block))
    return max(extra_bytes - kernel.price.fixed_bytes, 0) / held_bytes


def measure_in_forks(name: str, shapes: list[str]) -> None:
    """Print a figure for each shape, each measured in a fork of this process, which is warm."""
    prepare_process()  # malloc as in workers
    kernel = kernel_of(name)
    kernel.run(make_block("mojibake", 100_000))
    gc.collect()
    gc.freeze()  # a collection in a fork would walk, and so copy, all that is here already
    for shape in shapes:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.write(1, f"{measure_one(kernel, shape)}\n".encode())
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(pid, 0)
        if status:
            sys.exit(f"{name}, {shape}: ended with status {os.waitstatus_to_exitcode(status)}")


def measured(name: str, shapes: list[str]) -> Iterator[float]:
    """Measure a kernel in a process of its own; the figures come as they are made."""
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, name, "--here"]
    for shape in shapes:
        command += ["--shape", shape]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        yield from map(float, process.stdout or ())
    if process.returncode:
        sys.exit(process.returncode)


def main() -> None:
    """Print a table, a row for each kernel."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help=f"some of: {'; '.join(KERNELS)}")
    parser.add_argument("--shape", action="append", choices=SHAPES, help="a shape of text; may be given several times")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    shapes = asked.shape or list(SHAPES)
    if asked.here:
        measure_in_forks(asked.kernels[0], shapes)
        return
    print(f"{'kernel':28}{'stated':>8}" + "".join(f"{shape:>26}" for shape in shapes), flush=True)
    exceeded = 0
    for name in asked.kernels or KERNELS:
        stated = kernel_of(name).price.peak_factor
        print(f"{name:28}{stated:8.2f}", end="", flush=True)
        for factor in measured(name, shapes):
            is_more = factor > stated + ALLOWANCE_BYTES / BLOCK_BYTES
            exceeded += is_more
            print(f"{factor:>25.2f}{'*' if is_more else ' '}", end="", flush=True)
        print(flush=True)
    sys.exit(1 if exceeded else 0)


if __name__ == "__main__":
    main()
