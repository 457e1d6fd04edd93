# SPDX-License-Identifier: Apache-2.0
"""Measure the peak of every operator's kernels, each in a fork of one process that is warm: ``-m tests.contracts.memory_server``.

Imports, compiled kernels and one call on a small block come before the fork, and another small call after it, because a
fork finds no page of a library mapped. Then the high-water mark is reset, and read while the result is still held.
Arguments are the shapes to measure each case on; without one, each is measured on the shape that costs it the most. Prints one
JSON object a line, a `Measured`.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import gc
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa

from curator_df.cluster.preload import prepare_process
from curator_df.core.ranges.blocks import BlockKernel, Outcome
from curator_df.dedup import substring_removal
from curator_df.dedup.substring_removal import SubstringDrop
from curator_df.exchange import dropped_rows, key_drop
from curator_df.exchange.key_drop import PartDrop
from curator_df.exchange.range_groups import RangeGroups
from curator_df.io.frames import to_block
from curator_df.kernels.compiling.compiled import compile_named
from curator_df.kernels.text.buffers import text_lengths, text_spans
from curator_df.memory.limits import peak_of_call
from curator_df.ops.rows.document_joiner import Joining
from curator_df.ops.rows.document_parts import DocumentJoin, JoinDocuments
from curator_df.ops.rows.ids import NumberRows, RowNumbering
from curator_df.ops.rows.importance_sample import ImportanceSample, Limit
from tests.contracts.operator_cases import BOUNDED, CASES, Case, kernels_of, table

BLOCK_BYTES = 8_000_000
SMALL_BLOCK_BYTES = 100_000
SLOW_BLOCK_BYTES = 2_000_000
"""Of cases that take seconds for more."""
SLOW = (
    "add_language",
    "add_metrics, web",
    "add_token_count",
    "keep_language",
    "keep_profile, tokens",
    "keep_profile, unicode words",
    "keep_profile, words by ICU",
    "redact_pii, entities",
    "redact_pii, hashed entities",
)
"""What the names of these cases begin with."""
PROSE = "It was the best of times, and it was the worst of times; that we have to be with all of it.\n"


@dataclass(frozen=True)
class Shape:
    """One kind of block."""

    text: str
    """Of every row, or, repeated, of the only one."""
    one_row: bool = False
    """True: a single document as large as the block."""
    block_bytes: int = BLOCK_BYTES
    """About the bytes of the block."""


SHAPES = {
    "prose": Shape(PROSE * 20),
    "prose with CRLF": Shape(PROSE.replace("\n", "\r\n") * 20),
    "one-letter words": Shape("a b c d e f g h i\n" * 100),
    "CJK": Shape("我们认为这些真理是不言而喻的。\n" * 40),
    "mojibake": Shape(PROSE * 19 + "cafÃ© noir\n"),
    "one huge row": Shape(PROSE, one_row=True),
    "one huge line of mojibake": Shape("cafÃ© ", one_row=True, block_bytes=4_000_000),
    "one huge row of one-letter words": Shape("a b c d e f g h i\n", one_row=True, block_bytes=4_000_000),
    "rows of 100 bytes": Shape(PROSE + "short.\n"),
    "addresses": Shape("<p>a@b.co c@d.co 8.8.8.8\n" * 40, block_bytes=4_000_000),
}
WORST_SHAPES = (
    "one huge line of mojibake",
    "one huge row of one-letter words",
    "rows of 100 bytes",
    "addresses",
)
"""Shapes that cost the most: on one of them, every case comes within 0.06 blocks of its peak on all shapes."""
WORST = Path(__file__).resolve().parents[1] / "data/worst_shapes.json"
"""For each case the shape, one of `WORST_SHAPES`, that costs it the most. Other cases are measured on all of these."""


@dataclass(frozen=True)
class Measured:
    """The peak of one kernel."""

    case: str
    """Of `CASES`."""
    shape: str
    """Of `SHAPES`."""
    kernel: str
    """Its name."""
    peak_factor: float
    fixed_bytes: int
    """What it states."""
    block_bytes: int
    """Its Arrow table, without the index: what the readers and the plan call the bytes of a block."""
    extra_bytes: int
    """Peak of the process over what it held with the block."""


def shapes_of(case: Case) -> tuple[str, ...]:
    """Return the shapes on which a case is measured unless others are named."""
    listed = json.loads(WORST.read_text())
    return (listed[str(case)],) if str(case) in listed else WORST_SHAPES


def make_table(shape: Shape, wanted_bytes: int) -> pa.Table:
    """Make a table of one Arrow chunk, whose first row has no text."""
    row = shape.text.encode()
    if shape.one_row:
        row = row * (wanted_bytes // len(row))
    rows = max(wanted_bytes // len(row), 1)
    offsets = np.concatenate([[0], np.arange(rows + 1, dtype=np.int64) * len(row)])
    valid = pa.py_buffer(np.packbits(np.arange(rows + 1) > 0, bitorder="little"))
    texts = pa.LargeStringArray.from_buffers(rows + 1, pa.py_buffer(offsets), pa.py_buffer(row * rows), valid)
    return pa.table({"id": pa.array(np.arange(rows + 1)), "text": texts})


def make_block(made: pa.Table) -> Any:
    """Make a block of a table as the readers do."""
    return to_block(made, np.arange(len(made)) * 1_000)


def costly_kernels(case: Case) -> list[BlockKernel]:
    """Return the kernels of a case, with the arguments that cost the most."""
    return kernels_of(case(table(), **case.costly))


def run_kernel(kernel: BlockKernel, block: Any) -> Outcome:
    """Run a kernel; of a pending one the last pass, in which of a drop the first row goes."""
    if kernel.pending is None:
        outcome = kernel.run(block)
        if outcome.rest is not None:  # as a run takes the parts: each is let go of before the next is made
            rest, outcome = outcome.rest, Outcome(block)
            collections.deque(rest, maxlen=0)
        return outcome
    if isinstance(kernel.pending, RowNumbering):
        return NumberRows(kernel.pending, np.array([len(block)])).of_range(0).run(block)
    if isinstance(kernel.pending, ImportanceSample):
        keys, _ = kernel.pending.keys(block.iloc[:1])
        limit = Limit(int(keys[0]), *(np.zeros(1, dtype) for dtype in (np.int64, np.int64, np.uint64)))
        return kernel.pending.resolved(limit).of_range(0).run(block)
    if isinstance(kernel.pending, DocumentJoin):
        return join_rows(kernel.pending.joining, block)
    if isinstance(kernel.pending, SubstringDrop):
        return remove_substrings(kernel.pending, block)
    groups = RangeGroups(np.zeros(1, np.int64), 1)
    found = dropped_rows.Found(mock.Mock(), (), np.zeros(1, np.int64), np.zeros(1, np.uint64), groups=groups)
    of_parts = isinstance(kernel.pending, PartDrop)
    with mock.patch.object(dropped_rows, "DropReader") as reader, mock.patch.object(key_drop, "read_drops") as pieces:
        reader.return_value.drops = lambda addresses: addresses == 0
        # The first part of the second row: the first has no text.
        pieces.return_value = iter([np.array([[block.index[min(1, len(block) - 1)], 0]])] if of_parts else [])
        return kernel.pending.resolved(found).of_range(0).run(block)


def remove_substrings(pending: SubstringDrop, block: Any) -> Outcome:
    """Remove the first window of each row that has one, as the last pass does."""
    lengths = np.concatenate([text_lengths(span) for span in text_spans(block[pending.text])])
    drops = np.stack([block.index.to_numpy()[lengths >= pending.min_bytes].view(np.uint64)] * 2, axis=1)
    drops[:, 1] = 1
    with mock.patch.object(substring_removal, "read_drops", side_effect=[iter([drops.view(np.int64)])]):
        return pending.resolved((mock.Mock(),)).of_range(0).run(block)


def join_rows(joining: Joining, block: Any) -> Outcome:
    """Join rows of which each is a document, of any size."""
    made = dataclasses.replace(joining, id="id", text="text", segment_id="number", max_document_bytes=1 << 40)
    found = mock.Mock(goes_on=[False], following=lambda _: ())
    found.found.rows = [len(block)]
    range_documents = JoinDocuments(DocumentJoin(made), found).of_range(0)
    return range_documents.run(block.assign(number=pd.array(np.zeros(len(block)), dtype="Int64")))


def measure(case: Case, name: str) -> Iterator[Measured]:
    """Measure each kernel of a case, the second on what the first one left."""
    shape, kernels = SHAPES[name], costly_kernels(case)
    for kernel in kernels:
        run_kernel(kernel, case.prepared(make_block(make_table(shape, SMALL_BLOCK_BYTES))))
    made = make_table(shape, min(shape.block_bytes, SLOW_BLOCK_BYTES if str(case).startswith(SLOW) else BLOCK_BYTES))
    block = case.prepared(make_block(made))
    added = block.columns.difference(made.column_names)
    block_bytes = made.nbytes + int(block[list(added)].memory_usage(index=False).sum())
    for kernel in kernels:
        extra_bytes, outcome = peak_of_call(functools.partial(run_kernel, kernel, block))
        yield Measured(
            str(case), name, kernel.name, kernel.price.peak_factor, kernel.price.fixed_bytes, block_bytes, extra_bytes
        )
        block = outcome.block


def in_a_fork(action: Callable[[], None]) -> None:
    """Run an action in a fork of this process."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            action()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    if status:
        raise ChildProcessError(f"a measurement ended with status {os.waitstatus_to_exitcode(status)}")


def main(*shapes: str) -> None:
    """Measure every case on each of these shapes or on its own, but for those whose price is a bound."""
    prepare_process()
    cases = [case for case in CASES if case.operator not in BOUNDED]
    for case in cases:
        for kernel in costly_kernels(case):
            collections.deque(compile_named(kernel.compiled), maxlen=0)  # small blocks need not call all of them
            run_kernel(kernel, case.prepared(make_block(make_table(SHAPES["mojibake"], SMALL_BLOCK_BYTES))))
    gc.collect()
    gc.freeze()  # a collection in a fork would walk, and so copy, all that is here already
    for case in cases:
        for shape in shapes or shapes_of(case):
            in_a_fork(lambda case=case, shape=shape: _print_all(measure(case, shape)))


def _print_all(measured: Iterator[Measured]) -> None:
    for one in measured:
        os.write(1, json.dumps(asdict(one)).encode() + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
