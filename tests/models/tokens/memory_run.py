# SPDX-License-Identifier: Apache-2.0
"""Measure the peaks of `write_tokens` on blocks of many shapes, each in a fork: ``-m tests.models.tokens.memory_run``.

Prints one JSON object a line: what was measured, the stated factor and fixed bytes, the bytes of the block, and the peak.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import sys
import tempfile
from typing import Any

from curator_df.cluster.preload import prepare_process
from curator_df.files.storage import Folder
from curator_df.memory.limits import peak_of_call
from curator_df.models.tokens import write
from curator_df.models.tokens.formats import ArrowFormat, MdsFormat, MegatronFormat, NumpyFormat
from curator_df.models.tokens.sink import SINK_BYTES, TokenSink
from curator_df.models.tokens.tokenizer import find_tokenizer
from tests.contracts.memory_server import SHAPES, SMALL_BLOCK_BYTES, in_a_fork, make_block, make_table
from tests.contracts.operator_cases import TOKENIZER, kernels_of, table

BLOCK_BYTES = 4_000_000
SHAPES_HERE = ("CJK", "one huge row of one-letter words", "rows of 100 bytes")
"""Shapes of `SHAPES` that cost the most."""
SINKS = {
    "megatron": (MegatronFormat("uint16"), None, True),
    "megatron of int32": (MegatronFormat("int32"), None, True),
    "numpy": (NumpyFormat("uint32", None), None, True),
    "numpy of a pack": (NumpyFormat("uint16", 2048), 2048, True),
    "arrow": (ArrowFormat(), None, True),
    "mds": (MdsFormat(None), None, True),
    "arrow of whole documents": (ArrowFormat(), 8192, False),
}


def kernel_of(dtype: str) -> Any:
    """Return the kernel for tokens of a type."""
    found = find_tokenizer("write_tokens", TOKENIZER)
    (kernel,) = kernels_of(
        write._tokenized(table(), found, "text", dtype, 7, special_tokens=True, keeps_addresses=True)
    )
    return kernel


def write_all(sink: TokenSink, block: Any) -> None:
    """Write a block as the only one of an input split."""
    writer = sink.open(0, None, 0)
    writer.append(block)
    writer.commit()


def measure(shape: str, dtype: str, made: Any) -> None:
    """Print the peak of a kernel, and of each writer of its tokens, each writer in a fork of its own."""
    kernel = kernel_of(dtype)
    small = kernel.run(make_block(made.slice(0, max(len(made) // 40, 1)))).block
    block = make_block(made)
    taken, outcome = peak_of_call(functools.partial(kernel.run, block))
    del block
    price = kernel.price
    for name in outputs_of(dtype):
        say(shape, name, "kernel", price.peak_factor, price.fixed_bytes - SINK_BYTES, made.nbytes, taken)
        in_a_fork(functools.partial(measure_writer, shape, name, made.nbytes, small, outcome.block))


def measure_writer(shape: str, name: str, block_bytes: int, small: Any, block: Any) -> None:
    """Print the peak of a writer."""
    form, pack, split = SINKS[name]
    with tempfile.TemporaryDirectory() as folder:
        sink = TokenSink(Folder(folder), form, pack, split, 0, True, ["a.jsonl"])
        write_all(sink, small)
        gc.collect()
        written, _ = peak_of_call(functools.partial(write_all, sink, block))
    say(shape, name, "writer", 0.0, SINK_BYTES, block_bytes, written)


def say(shape: str, output: str, what: str, factor: float, fixed: int, block: int, peak: int) -> None:
    """Print one measurement."""
    said = {
        "shape": shape,
        "output": output,
        "what": what,
        "factor": factor,
        "fixed": fixed,
        "block": block,
        "peak": peak,
    }
    os.write(1, json.dumps(said).encode() + b"\n")


def outputs_of(dtype: str) -> list[str]:
    """Return the kinds of output whose tokens have a type."""
    return [name for name, (form, _, _) in SINKS.items() if form.dtype == dtype]


def main() -> None:
    """Measure every shape and kind of output."""
    prepare_process()
    kernel_of("uint16").run(make_block(make_table(SHAPES["mojibake"], SMALL_BLOCK_BYTES)))
    gc.collect()
    gc.freeze()
    for shape in SHAPES_HERE:
        made = make_table(SHAPES[shape], min(SHAPES[shape].block_bytes, BLOCK_BYTES))
        for dtype in dict.fromkeys(form.dtype for form, _, _ in SINKS.values()):
            in_a_fork(functools.partial(measure, shape, dtype, made))


if __name__ == "__main__":
    sys.exit(main())
