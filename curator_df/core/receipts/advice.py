# SPDX-License-Identifier: Apache-2.0
"""What the figures of a finished run say about the next one: the symptom, its cause, and what to set."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from curator_df.core.ranges.quarantine import QUARANTINE_FOLDER
from curator_df.core.ranges.source import OFFSET_BITS
from curator_df.core.receipts.receipt import Receipt
from curator_df.core.sizes import show_size

LEAST_SECONDS = 10.0
"""Shorter runs say nothing about time: starting is part of it."""
MUCH_OF_THE_TIME = 0.6
"""Share of the tasks' time from which on one step is worth naming."""
IDLE_SHARE = 0.5
"""Share of the threads' time under which tasks were waiting for something."""
LITTLE_MEMORY = 0.35
"""Share of the memory allowed under which most of it was of no use."""
MANY_RETRIES = 0.1
"""Share of the ranges from which on running again costs time that matters."""
LITTLE_GPU_USE = 0.4
"""Share of the last pass under which a GPU mostly waited for the CPUs."""
FEW_DOCUMENTS = 2.0
"""Documents of a model's batch under which nearly each is computed alone."""
MANY_HALVED = 0.1
"""Share of a model's batches that did not fit, from which on trying them costs time that matters."""
MUCH_SKEW = 3.0
"""Keys of the largest hash range as a multiple of the mean, from which on one task works while others wait."""
LARGE_CLUSTER = 10.0
"""Rows of the largest cluster of vectors as a multiple of the mean, from which on comparing it takes most of the time."""


def advice(receipt: Receipt) -> list[str]:
    """Return what the figures of a run say about the next one, what matters most first."""
    checks: tuple[Callable[[Receipt], Iterator[str]], ...] = (
        _memory,
        _retries,
        _leaks,
        _rows,
        _time,
        _models,
        _skew,
        _clusters,
        _vectors,
    )
    return [text for check in checks for text in check(receipt)]


def rows_out_of_memory(receipt: Receipt) -> str:
    """Return what is to be said about rows that were set aside because memory ran out."""
    count = receipt.rows_out_of_memory
    rows = (
        f"{count:,} rows did not fit into the memory allowed, each alone"
        if count > 1
        else ("1 row did not fit into the memory allowed, alone")
    )
    rows += f" on the node, and went to {receipt.quarantine_folder} "
    with_what = "with file, offset, size and step"
    if receipt.quarantine is not None:
        return (
            f"{rows}and were not compared, {with_what}. To have them compared, allow more memory, and another workdir="
        )
    return (
        f"{rows}instead of the output, {with_what}. To have such rows, allow more memory and run with "
        "on_existing='overwrite'"
    )


def _memory(receipt: Receipt) -> Iterator[str]:
    if receipt.rows_out_of_memory:
        yield rows_out_of_memory(receipt)
    measured, projected, allowed = receipt.measured_bytes, receipt.projected_bytes, receipt.allowed_bytes
    if measured > projected > 0:
        yield (
            f"{show_size(measured)} were measured and {show_size(projected)} projected: a step needs more than it states. "
            "profile_memory measures a function of yours; explain says which factors are assumed"
        )
    if 0 < measured < LITTLE_MEMORY * allowed and receipt.seconds > LEAST_SECONDS:
        yield (
            f"of {show_size(allowed)} allowed {show_size(measured)} were used: memory={show_size(2 * measured)!r} would do, or "
            f"more cpus= than {receipt.arguments.get('cpus', receipt.tasks_at_a_time)} where the machine has them"
        )

    if moved := receipt.device_spilled_bytes:
        yield (
            f"cuDF moved {show_size(moved)} from GPUs to the host and back: a smaller blocksize=, or more device_memory=, spares "
            "that time"
        )


def _retries(receipt: Receipt) -> Iterator[str]:
    if receipt.retries.get("memory"):
        yield "tasks ran out of memory and were run again with smaller blocks; a smaller blocksize= avoids that"
    if receipt.retries.get("worker lost"):
        yield (
            f"{receipt.retries['worker lost']:,} times a range ended its worker: something allocates outside Python and Arrow, "
            "or crashes; on a cluster from connect, raise --memory-limit or give each worker fewer threads"
        )
    alone = receipt.retries.get("exclusive", 0)
    if alone > max(2, MANY_RETRIES * receipt.ranges):
        yield (
            f"{alone:,} of {receipt.ranges:,} ranges ran alone on the node, one after the other: rows are longer than fit beside "
            "other tasks; more memory=, or fewer cpus=, leaves each task more"
        )


def _leaks(receipt: Receipt) -> Iterator[str]:
    names = sorted({leak.step for leak in receipt.leaks if leak.step})
    if receipt.leaks:
        yield (
            f"workers held more after each task, {len(receipt.leaks):,} time{'s' * (len(receipt.leaks) > 1)}"
            + (
                f", because {', '.join(names)} leaves memory behind: look for what it appends to or caches"
                if names
                else "; no step was seen to leave memory behind: a cache that fills, or memory of something else"
            )
        )


def _rows(receipt: Receipt) -> Iterator[str]:
    # Of several outputs one may be small because that is what it is for.
    if receipt.outputs == 1 and receipt.rows_read and receipt.rows_dropped > 0.95 * receipt.rows_read:
        yield "more than 95 % of the rows were dropped: see receipt.reasons() for the rules that did it"
    others = receipt.rows_quarantined - receipt.rows_out_of_memory
    if receipt.rows_read and others > 0.01 * receipt.rows_read:
        yield (
            f"{others / receipt.rows_read:.1%} of the rows are in {QUARANTINE_FOLDER}, because they cannot be read or your "
            "function raised on them: look at their reasons before you go on"
        )


def _time(receipt: Receipt) -> Iterator[str]:
    in_steps = sum(step.seconds for step in receipt.steps)
    compared = sum(exchange.seconds for exchange in receipt.exchanges)
    # The steps of the last pass in seconds of a thread, and comparisons, which take all threads.
    busy = in_steps + compared * receipt.tasks_at_a_time
    if busy <= LEAST_SECONDS or receipt.outputs > 1:  # the seconds of other outputs are in their receipts
        return
    longest = max(receipt.exchanges, key=lambda exchange: exchange.seconds, default=None)
    if longest is not None and longest.seconds * receipt.tasks_at_a_time > MUCH_OF_THE_TIME * busy:
        share = longest.seconds * receipt.tasks_at_a_time / busy
        yield f"{longest.step} took {share:.0%} of the time ({longest.seconds:,.0f} s) to compare rows, before the last pass"
    files = sum(step.seconds for step in receipt.steps if step.name in ("read", "write"))
    slowest = max(receipt.steps, key=lambda step: step.seconds)
    if slowest.seconds > MUCH_OF_THE_TIME * busy and slowest.name not in ("read", "write"):
        yield f"{slowest.name} took {slowest.seconds / busy:.0%} of the time ({slowest.seconds:,.0f} s)"
    elif files > MUCH_OF_THE_TIME * busy:
        yield (
            f"reading and writing took {files / busy:.0%} of the time: a faster disk or compression ('snappy', 'none') helps, "
            "more cpus= does not"
        )
    threads_seconds = (receipt.seconds - compared) * receipt.tasks_at_a_time
    if not receipt.ranges_resumed and LEAST_SECONDS < in_steps < IDLE_SHARE * threads_seconds:
        few = receipt.ranges < 2 * receipt.tasks_at_a_time
        yield (
            f"threads were busy {in_steps / threads_seconds:.0%} of the time: "
            + (
                f"{receipt.ranges:,} ranges are few for {receipt.tasks_at_a_time} threads; more and smaller files, or files "
                "that are not compressed, can be cut finer"
                if few
                else "ranges waited for one that ran alone, for the disk, or for the client; see retries"
            )
        )


def _models(receipt: Receipt) -> Iterator[str]:
    idle = {name: share for name, share in receipt.gpu_use.items() if share < LITTLE_GPU_USE}
    if idle and receipt.seconds > LEAST_SECONDS:
        listed = ", ".join(f"{name} {share:.0%}" for name, share in idle.items())
        yield (
            f"GPUs were at work little of the time ({listed}), because blocks came too slowly or batches are small: put cheaper "
            "filters first, raise max_batch_tokens=, or ask for less of a GPU with resources=, so that more calls run at a time"
        )
    for step in receipt.steps:
        batches, halved = step.counters.get("batches", 0), step.counters.get("batches_halved", 0)
        if halved > MANY_HALVED * batches > 0:
            yield (
                f"{step.name}: {halved:,} batches did not fit into memory beside {batches:,} that did; half of "
                "max_batch_tokens= avoids trying them"
            )
        if 0 < step.counters.get("documents", 0) < FEW_DOCUMENTS * batches and step.seconds > LEAST_SECONDS:
            yield (
                f"{step.name}: {step.counters['documents'] / batches:.1f} documents a batch are few: a larger max_batch_tokens= "
                "(or model_inference_batch_size=) gives the model more at a time, a larger blocksize= where blocks have few rows"
            )


def _skew(receipt: Receipt) -> Iterator[str]:
    for exchange in receipt.exchanges:
        if exchange.skew > MUCH_SKEW and exchange.hash_ranges > 1:
            yield (
                f"{exchange.step}: the largest hash range had {exchange.skew:.1f} x the mean of keys, because many rows have "
                "the same key; drop_exact_duplicates on the text first takes such rows away"
            )


def _clusters(receipt: Receipt) -> Iterator[str]:
    for exchange in receipt.exchanges:
        clusters, largest = exchange.details.get("clusters", 0), exchange.details.get("largest_cluster", 0)
        if exchange.seconds > LEAST_SECONDS and largest * clusters > LARGE_CLUSTER * exchange.keys:
            yield (
                f"{exchange.step}: the largest of {clusters:,} clusters has {largest:,} of {exchange.keys:,} rows, and all "
                "pairs in a cluster are compared; a larger num_clusters= may divide it, and drop_exact_duplicates or "
                "drop_near_duplicates first removes rows that are nearly the same"
            )


def _vectors(receipt: Receipt) -> Iterator[str]:
    for exchange in receipt.exchanges:
        count, first = exchange.details.get("not_finite_vectors", 0), exchange.details.get("first_not_finite")
        if count and first is not None:
            file, offset = divmod(first, 1 << OFFSET_BITS)
            rows = f"{count:,} rows have" if count > 1 else "1 row has"
            yield (
                f"{exchange.step}: {rows} a vector with NaN or infinity. Such rows are kept without a comparison. The first is "
                f"at offset {offset:,} of input file {file:,}. Check the model that made the vectors, or drop these rows with "
                "keep_where before"
            )
