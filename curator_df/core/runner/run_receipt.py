# SPDX-License-Identifier: Apache-2.0
"""Content of a receipt: first the plan, the settings with reasons and the arguments to repeat it, then the records of ranges."""

from __future__ import annotations

import datetime as dt
import socket
import sys

from curator_df.core.planning.branches import Branch, Fork
from curator_df.core.planning.lowering import current_spooler
from curator_df.core.planning.plan import Plan, assumed_names, most_peak_bytes
from curator_df.core.planning.recorded_recipe import recorded_recipe
from curator_df.core.ranges.foreign_step import FOREIGN_PEAK_FACTOR
from curator_df.core.ranges.manifest import TaskRecord
from curator_df.core.tasks.task import OnError, OnOom
from curator_df.memory.sizes import show_size
from curator_df.receipts.earlier import earlier_runs
from curator_df.receipts.receipt import Receipt, StepReceipt

SAID_OF_CHOICES = {
    ("on_bad_rows", "quarantine"): "rows that cannot be read are quarantined",
    ("on_error", "quarantine"): "rows on which a function raises are quarantined",
    ("on_oom", "raise"): "the first input split that runs out of memory stops the run",
}
"""Descriptions of settings that differ from the default."""


def new_receipt(plan: Plan, joined: Fork, branch: Branch, ranges: int, on_error: OnError, on_oom: OnOom) -> Receipt:
    """Return the receipt of a branch with everything known before the run."""
    names = ("read", *(step.name for step in branch.program.steps), "write")
    receipt = Receipt(
        branch.sink.folder.url,
        steps=[StepReceipt(name) for name in names],
        ranges=ranges,
        input_bytes=plan.input_bytes,
        allowed_bytes=plan.layout.allowed_bytes,
        projected_bytes=plan.projected_bytes,
        projected_device_bytes=plan.device_bytes,
        rejects=None if branch.rejects is None else branch.rejects.folder.url,
        tasks_at_a_time=plan.layout.workers * plan.layout.threads,
        outputs=len(joined.branches),
        arguments=_arguments(plan, joined, on_error, on_oom),
        earlier=earlier_runs(joined.source),
    )
    note_start(receipt)
    receipt.settings = _settings(plan, joined, receipt)
    if len(joined.branches) > 1:
        shared = ", ".join(names[: joined.shared + 1])
        receipt.settings["shared"] = f"{shared}: once for {len(joined.branches)} outputs"
    return receipt


def note_start(receipt: Receipt) -> None:
    """Note in a receipt when, where and with which version its run is started, and by which calls."""
    now = dt.datetime.now(dt.UTC).replace(microsecond=0, tzinfo=None)
    package = sys.modules[__name__.partition(".")[0]]
    receipt.version, receipt.host, receipt.started = (
        str(package.__version__),
        socket.gethostname(),
        f"{now.isoformat()}Z",
    )
    receipt.recipe_text, receipt.recipe_gap = recorded_recipe()


def add_record(receipt: Receipt, done: TaskRecord) -> None:
    """Add the journal's record of one range to a receipt."""
    receipt.rows_read += done.rows_read
    receipt.rows_written += done.rows_written
    receipt.rows_quarantined += done.rows_quarantined
    receipt.rows_out_of_memory += done.rows_out_of_memory
    receipt.files += len(done.files)
    receipt.output_bytes += sum(file.size_bytes for file in done.files)
    for file in done.files:
        folder = file.name.rpartition("/")[0]
        if folder and not folder.startswith("_"):  # readers skip such a folder, which has no rows of the output
            receipt.rows_by_folder[folder] = receipt.rows_by_folder.get(folder, 0) + file.rows
    read, *between, write = receipt.steps
    read.rows_in += done.rows_read - done.rows_quarantined
    read.rows_out = read.rows_in
    read.seconds += done.read_seconds
    write.rows_in += done.rows_written
    write.rows_out = write.rows_in
    write.seconds += done.write_seconds
    for step, tally in zip(between, done.steps, strict=True):
        step.rows_in += tally.rows_in
        step.rows_out += tally.rows_out
        step.seconds += tally.seconds
        for mine, new in ((step.dropped, tally.dropped), (step.counters, tally.counters)):
            for name, number in new.items():
                mine[name] = mine.get(name, 0) + number
        for name, number in tally.peaks.items():
            step.peaks[name] = max(step.peaks.get(name, 0), number)


def _settings(plan: Plan, joined: Fork, receipt: Receipt) -> dict[str, str]:
    stage, layout = plan.stages[-1], plan.layout
    named = "set by blocksize=" if joined.explicit_block_bytes else "the largest that fits, at most 16 MB"
    said = {
        "layout": f"{layout.shape}: {layout.reason}",
        "blocks": f"{show_size(stage.block_bytes)}, {stage.task_factor:.1f} x that per task: {named}",
        "resume": "possible with other memory and CPUs: the input splits depend only on the input",
    }
    spooler = current_spooler()
    if spooler is not None and (operations := spooler.computed(joined.source.files)):
        said["before"] = (
            f"Dask computed {', '.join(operations)}; rows that it removed or added then are not counted here"
        )
    if pins := getattr(getattr(joined.source, "listing", None), "pins", ()):
        said["pinned"] = f"{', '.join(pins)}: read to the end, also if the branch moves"
    steps = [step for branch in joined.branches for step in branch.program.steps]
    if names := assumed_names(steps):
        bound = f"the peak may reach {show_size(most_peak_bytes(layout))}, where allocations fail"
        said["assumed"] = f"{FOREIGN_PEAK_FACTOR} x block for {', '.join(names)}; {bound}"
    if layout.device_bytes:
        said["gpus"] = f"one for each worker process, with a budget of {show_size(layout.device_bytes)}"
    for (name, value), why in SAID_OF_CHOICES.items():
        if receipt.arguments.get(name) == value:
            said[name] = f"{value}: {why}"
    return said


def _arguments(plan: Plan, joined: Fork, on_error: OnError, on_oom: OnOom) -> dict[str, int | str]:
    layout, given = plan.layout, dict[str, int | str]()
    given |= {"memory": layout.allowed_bytes, "cpus": layout.cpus}
    if layout.device_bytes:
        given |= {"gpus": layout.node_workers, "device_memory": layout.device_bytes}
    given["blocksize"] = plan.stages[-1].block_bytes
    if joined.source.quarantines:
        given["on_bad_rows"] = "quarantine"
    return given | {"on_error": on_error, "on_oom": on_oom}
