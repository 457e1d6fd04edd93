# SPDX-License-Identifier: Apache-2.0
"""Advice for the next run, from the figures of a finished one: the symptom, its cause, and what to set."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from curator_df.core.ranges.out_of_memory import Cause
from curator_df.core.ranges.source import OFFSET_BITS
from curator_df.files.storage import QUARANTINE_FOLDER
from curator_df.memory.sizes import show_count, show_size, size_to_type
from curator_df.receipts.receipt import Receipt

READERS = ("read", "read_warc")
"""Names of steps that read."""
LEAST_SECONDS = 10.0
"""Minimum duration of a run for advice about time, in seconds: shorter runs are dominated by their start."""
MUCH_OF_THE_TIME = 0.6
"""Fraction of the tasks' time from which on a single step is reported."""
IDLE_SHARE = 0.5
"""Fraction of the threads' time below which tasks were waiting."""
LITTLE_MEMORY = 0.35
"""Fraction of the budget below which most of it was unused."""
MANY_RETRIES = 0.1
"""Fraction of the ranges from which on retries cost noticeable time."""
LITTLE_GPU_USE = 0.4
"""Fraction of the last pass below which a GPU mostly waited for the CPUs."""
FEW_DOCUMENTS = 2.0
"""Number of documents per model batch below which nearly each is computed separately."""
MANY_HALVED = 0.1
"""Fraction of a model's batches that did not fit, from which on trying them costs noticeable time."""
MUCH_SKEW = 3.0
"""Size of the largest hash range as a multiple of the mean, from which on one task works while others wait."""
LARGE_CLUSTER = 10.0
"""Size of the largest cluster of vectors as a multiple of the mean, from which on its comparison takes most of the time."""


def advice(receipt: Receipt) -> list[str]:
    """Return advice for the next run from the figures of this one, the most important first."""
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
    """Return the message about rows that were quarantined because memory ran out."""
    count = receipt.rows_out_of_memory
    rows = (
        f"{count:,} rows did not fit into the memory budget, even when each ran exclusively"
        if count > 1
        else ("1 row did not fit into the memory budget, even when it ran exclusively")
    )
    rows += f", and went to {receipt.quarantine_folder} "
    with_what = "with file, offset, size and step"
    if receipt.quarantine is not None:
        return f"{rows}without a comparison, {with_what}. To compare them, set a larger memory= and another workdir="
    return (
        f"{rows}instead of the output, {with_what}. To process such rows, set a larger memory= and run with "
        "on_existing='overwrite'"
    )


def _memory(receipt: Receipt) -> Iterator[str]:
    if receipt.rows_out_of_memory:
        yield rows_out_of_memory(receipt)
    measured, projected, allowed = receipt.measured_bytes, receipt.projected_bytes, receipt.allowed_bytes
    if measured > projected > 0:
        above = f"The actual peak was {show_size(measured)}, more than the estimated peak of {show_size(projected)}"
        if assumed := receipt.settings.get("assumed"):
            yield (
                f"{above}, which assumes {assumed}. profile_memory measures what a function needs, and a BlockKernel states it"
            )
        else:
            yield (
                f"{above}: a step needs more memory than it states. Measure your own functions with profile_memory; explain "
                "shows which factors are assumed"
            )
    if 0 < measured < LITTLE_MEMORY * allowed and receipt.seconds > LEAST_SECONDS:
        yield (
            f"The run used {show_size(measured)} of its {show_size(allowed)} budget. Use memory={size_to_type(2 * measured)}, or "
            f"cpus= above {receipt.arguments.get('cpus', receipt.tasks_at_a_time)} if the machine has them"
        )

    if moved := receipt.device_spilled_bytes:
        yield (
            f"cuDF moved {show_size(moved)} from GPUs to the host and back. Use a smaller blocksize= or a larger device_memory= "
            "to save that time"
        )


def _retries(receipt: Receipt) -> Iterator[str]:
    if receipt.retries.get(Cause.MEMORY):
        yield "Tasks ran out of memory and were repeated with smaller blocks. Use a smaller blocksize= to avoid that"
    if receipt.retries.get(Cause.WORKER_LOST):
        yield (
            f"Input splits crashed their workers {receipt.retries[Cause.WORKER_LOST]:,} times: code outside Python and Arrow "
            "allocates memory or crashes. On a cluster from connect, raise --memory-limit or give each worker fewer threads"
        )
    alone = receipt.retries.get(Cause.EXCLUSIVE, 0)
    if alone > max(2, MANY_RETRIES * receipt.ranges):
        yield (
            f"{alone:,} of {receipt.ranges:,} input splits ran exclusively, one after the other, because their rows are too long "
            "to run concurrently with other tasks. Use a larger memory=, or a smaller cpus=, to give each task more memory"
        )


def _leaks(receipt: Receipt) -> Iterator[str]:
    names = sorted({leak.step for leak in receipt.leaks if leak.step})
    if receipt.leaks:
        yield (
            f"The memory of workers grew after each task, {len(receipt.leaks):,} time{'s' * (len(receipt.leaks) > 1)}"
            + (
                f", because {', '.join(names)} leaves memory behind. Check what it appends to or caches"
                if names
                else ". No step was found to leave memory behind, so it may be a cache that is filling up"
            )
        )


def _rows(receipt: Receipt) -> Iterator[str]:
    # Readers drop records that are not documents: three of four in a crawl are requests, metadata or robots.txt files.
    by_readers = sum(step.rows_dropped for step in receipt.steps if step.name in READERS)
    documents, dropped = receipt.rows_read - by_readers, receipt.rows_dropped - by_readers
    # With several outputs, one may be small on purpose.
    if receipt.rows_read and not documents:
        yield (
            f"The reader kept none of the {show_count(receipt.rows_read, 'record')} of the input: check that the files hold "
            "documents. See receipt.reasons() for the reasons"
        )
    elif receipt.outputs == 1 and dropped > 0.95 * documents > 0:
        yield "More than 95% of the rows were dropped. See receipt.reasons() for the rules that dropped them"
    others = receipt.rows_quarantined - receipt.rows_out_of_memory
    if receipt.rows_read and others > 0.01 * receipt.rows_read:
        yield (
            f"{others / receipt.rows_read:.1%} of the rows are in {QUARANTINE_FOLDER}, because they cannot be read or a step "
            "failed on them. Check their reasons before you continue"
        )


def _time(receipt: Receipt) -> Iterator[str]:
    in_steps = sum(step.seconds for step in receipt.steps)
    compared = sum(exchange.seconds for exchange in receipt.exchanges)
    # Thread seconds of the steps of the last pass, and of the comparisons, which use all threads.
    busy = in_steps + compared * receipt.tasks_at_a_time
    if busy <= LEAST_SECONDS or receipt.outputs > 1:  # the seconds of other outputs are in their receipts
        return
    longest = max(receipt.exchanges, key=lambda exchange: exchange.seconds, default=None)
    if longest is not None and longest.seconds * receipt.tasks_at_a_time > MUCH_OF_THE_TIME * busy:
        share = longest.seconds * receipt.tasks_at_a_time / busy
        spilled = longest.spilled_bytes
        on_disk = f". {show_size(spilled)} did not fit into memory: use a larger memory=" if spilled else ""
        yield (
            f"{longest.step} took {share:.0%} of the time ({longest.seconds:,.0f} s) to compare rows. Put filters before it, so "
            f"that it compares fewer rows{on_disk}"
        )
    files = sum(step.seconds for step in receipt.steps if step.name in ("read", "write"))
    slowest = max(receipt.steps, key=lambda step: step.seconds)
    if slowest.seconds > MUCH_OF_THE_TIME * busy and slowest.name not in ("read", "write"):
        yield (
            f"{slowest.name} took {slowest.seconds / busy:.0%} of the time ({slowest.seconds:,.0f} s). Put filters that cost "
            "less before it, so that it gets fewer rows, or use more cpus="
        )
    elif files > MUCH_OF_THE_TIME * busy:
        yield (
            f"Reading and writing took {files / busy:.0%} of the time. Use a faster disk or compression ('snappy', 'none'); "
            "more cpus= will not help"
        )
    threads_seconds = (receipt.seconds - compared) * receipt.tasks_at_a_time
    if not receipt.ranges_resumed and LEAST_SECONDS < in_steps < IDLE_SHARE * threads_seconds:
        few = receipt.ranges < 2 * receipt.tasks_at_a_time
        yield (
            f"Threads were busy {in_steps / threads_seconds:.0%} of the time. "
            + (
                f"{show_count(receipt.ranges, 'input split')} cannot keep {receipt.tasks_at_a_time} threads busy. More and "
                "smaller files, or uncompressed files, allow more splits"
                if few
                else "Tasks waited for one that ran exclusively, for the disk, or for the client; see the retries"
            )
        )


def _models(receipt: Receipt) -> Iterator[str]:
    idle = {name: share for name, share in receipt.gpu_use.items() if share < LITTLE_GPU_USE}
    if idle and receipt.seconds > LEAST_SECONDS:
        listed = ", ".join(f"{name} {share:.0%}" for name, share in idle.items())
        yield (
            f"GPUs were mostly idle ({listed}), because blocks arrived too slowly or batches are small. Put cheaper "
            "filters first, raise max_batch_tokens= of cdf.model, or request less of a GPU with its resources= to run more calls "
            "concurrently"
        )
    for step in receipt.steps:
        batches, halved = step.counters.get("batches", 0), step.counters.get("batches_halved", 0)
        if halved > MANY_HALVED * batches > 0:
            yield (
                f"{step.name}: {halved:,} batches did not fit into memory, while {batches:,} did. Halve max_batch_tokens= of "
                "cdf.model to avoid trying them"
            )
        if 0 < step.counters.get("documents", 0) < FEW_DOCUMENTS * batches and step.seconds > LEAST_SECONDS:
            yield (
                f"{step.name}: {step.counters['documents'] / batches:.1f} documents per batch are few. Use a larger "
                "max_batch_tokens= of cdf.model (or model_inference_batch_size=), or a larger blocksize= if blocks have few rows"
            )


def _skew(receipt: Receipt) -> Iterator[str]:
    for exchange in receipt.exchanges:
        if exchange.skew > MUCH_SKEW and exchange.hash_ranges > 1:
            yield (
                f"{exchange.step}: one task compared {exchange.skew:.1f} x as many keys as the mean of all tasks, "
                "because many rows have the same key, so other tasks waited for it. Remove such rows first with "
                "drop_exact_duplicates on the text"
            )


def _clusters(receipt: Receipt) -> Iterator[str]:
    for exchange in receipt.exchanges:
        clusters, largest = exchange.details.get("clusters", 0), exchange.details.get("largest_cluster", 0)
        if exchange.seconds > LEAST_SECONDS and largest * clusters > LARGE_CLUSTER * exchange.keys:
            yield (
                f"{exchange.step}: the largest of {clusters:,} clusters has {largest:,} of {exchange.keys:,} rows, and all "
                "pairs in a cluster are compared. A larger num_clusters= may divide it. Remove rows that are nearly the same "
                "first, with drop_exact_duplicates or drop_near_duplicates"
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
