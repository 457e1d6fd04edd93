# SPDX-License-Identifier: Apache-2.0
"""Estimate of a run before it starts: memory of a task and of the node, and the largest row that can be processed.

The host memory of a task is in `core.planning.price`, its GPU memory in `core.planning.device_plan`.
"""

from __future__ import annotations

import dataclasses
import html
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from curator_df.core.planning.branches import Branch, Fork, fork
from curator_df.core.planning.concurrency import LEAST_BLOCK_BYTES, is_offloaded, tasks_planned
from curator_df.core.planning.device_plan import DeviceNeed, capacity_with_blocks, device_need
from curator_df.core.planning.disk import WorkingFiles
from curator_df.core.planning.first_steps import how_to_run_once
from curator_df.core.planning.one_pass import in_one_pass, said_of_order
from curator_df.core.planning.price import (
    held_bytes_of,
    kept_bytes_of,
    largest_block,
    others_factor,
    page_bytes_of,
    steps_of,
    task_bytes,
    task_factor,
)
from curator_df.core.planning.program import Program, Step
from curator_df.core.ranges.foreign_step import FOREIGN_PEAK_FACTOR, Graph
from curator_df.core.ranges.sink import Sink
from curator_df.core.ranges.source import Ranges, Source
from curator_df.errors import BudgetError
from curator_df.memory.budget import Layout, larger_memory, most_cpus
from curator_df.memory.resources import NO_LIMITS, Capacity
from curator_df.memory.sizes import show_count, show_duration, show_size, show_sizes, size_to_type
from curator_df.receipts.drawing import BASELINE, STEPS, TASKS, budget_drawing, pass_drawing
from curator_df.suggestions import suggests_names

MIN_BLOCK_BYTES = 1_000_000
"""Minimum block size in bytes: smaller blocks cost more time in Python than they save memory."""
MAX_DEFAULT_BLOCK_BYTES = 16_000_000
"""Maximum default block size in bytes. Larger blocks were not faster and need more memory: 1.9, 1.8, 1.8 and 2.0 s for 100 MB
through the Gopher chain in one thread, with blocks of 4, 16, 32 and 64 MB. ``blocksize=`` may set more.
"""
UNKNOWN_TIME = "not measured: run the chain on some of the files, and multiply the seconds of the receipt"
"""Text of a plan about its time if that is not known."""
ANSWERS = ("compile", "reused", "working files", "then")
"""Labels of remarks that are shown before the layout: what happens before the run, or does not have to."""


@dataclass(frozen=True)
class StagePlan:
    """One pass over the input."""

    title: str
    """Purpose of the pass."""
    steps: tuple[tuple[str, float, bool], ...]
    """Name, peak factor and whether it was measured, from reader to writer."""
    block_bytes: int
    """Decompressed bytes of a block."""
    task_factor: float
    """Peak bytes of a task as a multiple of the block size."""
    task_bytes: int
    """Peak bytes of a task."""
    largest_row_bytes: int
    """Longest row that can be processed concurrently with other tasks, in bytes."""
    exclusive_row_bytes: int
    """Longest row that can be processed exclusively, in bytes."""
    capacity: Capacity
    """Resources that the tasks of a worker share."""
    of_input: bool = True
    """False for a pass over another table, with which the input is compared."""
    extra_tasks: int = 0
    """Extra tasks of each worker, beyond those of its threads, that fit: for steps whose work is done elsewhere."""


@suggests_names
@dataclass(frozen=True)
class Plan:
    """Everything `explain` shows.

    See Also
    --------
    explain, Receipt
    """

    layout: Layout
    """Processes, threads and bytes."""
    stages: tuple[StagePlan, ...]
    """Passes over the input, in order; none for a call that sends files without reading rows."""
    input_bytes: int
    """Size of the input on disk."""
    input_files: int
    """Number of input files."""
    projected_bytes: int
    """Estimated peak memory of the whole process tree, in bytes."""
    held_bytes: int = 0
    """Per-worker fixed memory of the steps in bytes, in addition to blocks."""
    limits: tuple[tuple[str, int], ...] = ()
    """Steps that need more of a worker than a thread, and the maximum number of its tasks in them concurrently."""
    kept: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Packages from earlier runs that this one does not use, and their bytes in each worker; part of ``held_bytes``."""
    elsewhere: tuple[str, ...] = ()
    """Steps whose work is done by a GPU or a server."""
    remarks: tuple[tuple[str, str], ...] = ()
    """Remarks: for example, that a step is slow with its arguments, or where its model computes."""
    run_once: str = ""
    """Sentence about running the steps before the first drop once for all passes; empty if their rows cannot be stored."""
    working_files: WorkingFiles = dataclasses.field(default_factory=WorkingFiles)
    """Disk space for working files, by operation; empty if there are none."""
    seconds: float | None = None
    """Time that the run, or the rest of it, takes in seconds; None if nothing has measured it."""
    measured_by: str = ""
    """Measurement of that time in words."""
    device: DeviceNeed | None = None
    """Use of the GPU of each worker; None if neither blocks nor models are on one."""

    @property
    def device_bytes(self) -> int:
        """Estimated peak memory on the GPU of each worker in bytes; 0 if nothing is on one."""
        return 0 if self.device is None else self.device.bytes_of(self.stages[-1].block_bytes)

    def with_long_row(self, row_bytes: int) -> int:
        """Return the estimated peak for an input that has a row of this size."""
        stage = self.stages[-1]
        needed = task_bytes(row_bytes, stage.task_factor)
        if row_bytes > stage.largest_row_bytes:  # then it ran exclusively
            return max(self.projected_bytes, self.layout.reserved_bytes + needed)
        return self.projected_bytes - stage.task_bytes + max(stage.task_bytes, needed)

    def with_merges(self, task_bytes: int) -> int:
        """Return the estimated peak with this many bytes of keys (or of texts to compare) for a task; 0 without any.

        A task has at most the memory of a thread, or that of all workers if it runs exclusively.
        """
        layout = self.layout
        together = layout.node_workers * (layout.threads * min(task_bytes, layout.thread_bytes) + self.held_bytes)
        alone = min(task_bytes, layout.exclusive_bytes) if task_bytes > layout.thread_bytes else 0
        at_most = layout.node_workers * layout.work_bytes
        return max(self.projected_bytes, layout.reserved_bytes + min(max(together, alone), at_most))

    def lines(self) -> list[tuple[str, str]]:
        """Return the content of the plan, as (label, value): whether it fits, what the run does, then the memory in detail."""
        layout = self.layout
        passes = sum(each.of_input for each in self.stages)
        read = f", read {passes} times" if passes > 1 else ""
        said = [
            (
                "memory",
                f"{show_size(self.projected_bytes)} estimated peak, {show_size(layout.allowed_bytes)} budget: it fits",
            ),
            ("input", f"{show_count(self.input_files, 'file')}, {show_size(self.input_bytes)}{read}"),
            *_under("disk", self.working_files.lines()),
            (
                "time",
                UNKNOWN_TIME if self.seconds is None else f"{self.measured_by}: about {show_duration(self.seconds)}",
            ),
            *(remark for remark in self.remarks if remark[0] in ANSWERS),
        ]
        if not self.stages:  # nothing passes over rows, as in push_to_hub
            return [*said, *(remark for remark in self.remarks if remark[0] not in ANSWERS)]
        stage = self.stages[-1]
        said += [
            *_under("passes", self._passes()),
            *_under("steps", self._steps()),
            (
                "layout",
                f"{layout.shape}, {show_size(layout.thread_bytes)} of working memory for each thread ({layout.reason})",
            ),
        ]
        if layout.client_bytes:
            said.append(("client", f"{show_size(layout.client_bytes)} used by this process since the cluster started"))
        if self.device is not None:
            said.append(("gpu", self.device.said(stage.block_bytes)))
        said.append(("blocks", _blocks(stage)))
        if self.held_bytes:
            said.append(("fixed", f"{show_size(self.held_bytes)} in each worker for steps, in addition to blocks"))
        if self.kept:
            names, kept_bytes = ", ".join(self.kept), sum(self.kept.values())
            whose = f"of that for packages of earlier runs ({names}), which restarted workers do not have"
            said.append(("", f"{show_size(kept_bytes)} {whose}"))
        said += self._tasks()
        return [*said, *(remark for remark in self.remarks if remark[0] not in ANSWERS)]

    def to_json(self) -> dict[str, Any]:
        """Return the figures of the plan as plain values. Sizes are in bytes.

        Returns
        -------
        dict
            ``budget_bytes`` and ``projected_bytes``: the memory allowed, and the estimated peak of all processes. ``seconds``:
            time of the run, or null. ``layout``: worker processes, threads of each, and working memory of a thread.
            ``working_files``: disk space that the run requires, and that it needs in the worst case, in all and by
            operation. ``passes``: what each pass over the input needs, with its ``steps`` (name, multiple of the block,
            and whether it was measured). ``lines``: the text that the plan displays, as pairs.
        """
        layout = self.layout
        return {
            "budget_bytes": layout.allowed_bytes,
            "projected_bytes": self.projected_bytes,
            "device_bytes": self.device_bytes,
            "input_bytes": self.input_bytes,
            "input_files": self.input_files,
            "working_files": self.working_files.to_json(),
            "seconds": self.seconds,
            "layout": {
                "workers": layout.workers,
                "threads": layout.threads,
                "thread_bytes": layout.thread_bytes,
                "worker_held_bytes": self.held_bytes,
            },
            "passes": [
                {
                    "title": stage.title,
                    "of_input": stage.of_input,
                    "block_bytes": stage.block_bytes,
                    "task_bytes": stage.task_bytes,
                    "largest_row_bytes": stage.largest_row_bytes,
                    "exclusive_row_bytes": stage.exclusive_row_bytes,
                    "steps": [
                        {"name": name, "peak_factor": factor, "is_measured": measured}
                        for name, factor, measured in stage.steps
                    ],
                }
                for stage in self.stages
            ],
            "lines": [list(line) for line in self.lines()],
        }

    def _tasks(self) -> Iterator[tuple[str, str]]:
        """Yield what limits the number of concurrent tasks."""
        layout, stage = self.layout, self.stages[-1]
        tasks = layout.threads + stage.extra_tasks
        waiting = f"the other tasks run other steps or wait, with one block each: {show_size(stage.task_bytes)} a task"
        for name, most in self.limits:
            yield "tasks", f"{name}: at most {most} of the {tasks} tasks of a worker concurrently; {waiting}"
        if self.elsewhere or layout.spare_cpus:
            yield "tasks", tasks_planned(self.elsewhere, layout.threads, stage.extra_tasks, layout.spare_cpus)

    def _passes(self) -> Iterator[str]:
        """Yield each pass with the steps that only it has, and how to have fewer; nothing if there is one pass."""
        if len(self.stages) == 1:
            return
        of_all = {name for name, _, _ in self.stages[-1].steps}
        for number, stage in enumerate(self.stages, start=1):
            own = [_factor(*step) for step in stage.steps if step[1] and (step[0] not in of_all or not stage.of_input)]
            yield f"{number}  {stage.title}{'; ' * bool(own)}{'; '.join(own)}"
        names = [name for name, _, _ in self.stages[0].steps[:-1]]
        passes = sum(stage.of_input for stage in self.stages)
        if self.run_once:
            yield self.run_once
        elif passes > 1:
            yield (
                f"With checkpoint(df, path) after {', '.join(names)}, that part would run once instead of {passes} times. "
                "The passes would then read the checkpoint instead of the input"
            )

    def _steps(self) -> Iterator[str]:
        """Yield each step of the last pass, with the passes that run it if there are several."""
        met: Counter[tuple[str, float, bool]] = Counter()
        steps = self.stages[-1].steps
        if (
            sum(name.startswith("write ") for name, _, _ in steps) > 1
        ):  # each output has steps of its own, such as split_rows
            steps = tuple(dict.fromkeys(steps))
        for step in steps:
            met[step] += 1
            runs = [
                n for n, stage in enumerate(self.stages, 1) if stage.of_input and stage.steps.count(step) >= met[step]
            ]
            yield _factor(*step) + (f", in {_numbers('pass', runs)}" if len(self.stages) > 1 else "")

    def drawing(self) -> str:
        """Draw the plan.

        Returns
        -------
        str
            A ``<div>`` element: a bar of the memory budget with what fills it, then each pass with its steps from left to right.
            Empty for a call that reads no rows.
        """
        if not self.stages:
            return ""
        layout = self.layout
        steps_bytes = layout.node_workers * self.held_bytes
        parts = [
            (layout.reserved_bytes, BASELINE, "processes and libraries before any work"),
            (self.projected_bytes - layout.reserved_bytes - steps_bytes, TASKS, "tasks that run at the same time"),
            (steps_bytes, STEPS, "what steps keep in each worker"),
        ]
        drawn = [budget_drawing(self.lines()[0][1], parts, layout.allowed_bytes)]
        for number, stage in enumerate(self.stages, start=1):
            title = f"pass {number} of {len(self.stages)}: {stage.title}" if len(self.stages) > 1 else "one pass"
            needs = f"blocks of {show_size(stage.block_bytes)}, {show_size(stage.task_bytes)} for a task"
            drawn.append(pass_drawing(title, needs, [name for name, _, _ in stage.steps]))
        return f"<div style='max-width:900px;margin:.3em 0 .8em'>{''.join(drawn)}</div>"

    def __rich__(self) -> Any:
        """Render for a terminal with rich."""
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        for name, value in self.lines():
            grid.add_row(Text(name, style="bold"), Text(value))
        return grid

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.lines())
        return "\n".join(f"{name:<{width}}  {value}" for name, value in self.lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th><td style='text-align:left'>"
            f"{html.escape(value)}</td></tr>"
            for name, value in self.lines()
        )
        return f"{self.drawing()}<table>{rows}</table>"


def _blocks(stage: StagePlan) -> str:
    """Describe the blocks of a pass, the memory of its tasks, and the longest rows."""
    task = f"a task needs {show_size(stage.task_bytes)} ({stage.task_factor:.1f} x the block + a fixed part)"
    longest = f"{show_size(stage.largest_row_bytes)}, or {show_size(stage.exclusive_row_bytes)} in a task that runs exclusively"
    return f"{show_size(stage.block_bytes)}; {task}; the longest row may have {longest}"


def _factor(name: str, factor: float, measured: bool) -> str:
    return f"{name}: {factor:.1f} x block ({'measured' if measured else 'assumed'})"


def _numbers(noun: str, numbers: Sequence[int]) -> str:
    """Return ``pass 4``, ``passes 1 to 3`` or ``passes 1, 2 and 4``."""
    if len(numbers) == 1:
        return f"{noun} {numbers[0]}"
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{noun}es {numbers[0]} to {numbers[-1]}"
    return f"{noun}es {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def _under(label: str, lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield lines of which the first has the label."""
    for number, line in enumerate(lines):
        yield "" if number else label, line


def plan_stream(program: Program, sink: Sink, rejects: Sink | None, layout: Layout) -> Plan:
    """Estimate a run into one sink; see `plan_fork`."""
    return plan_fork(fork([Branch(program, sink, rejects)]), layout)


def plan_fork(joined: Fork, layout: Layout) -> Plan:
    """Estimate one streaming stage, and raise an error if it cannot fit.

    Raises
    ------
    BudgetError
        The message names the block size or the memory that would fit. Nothing has been started.
    """
    joined = dataclasses.replace(joined)  # what is stored may have changed since an earlier plan
    factor = max(task_factor(joined), others_factor(joined))
    steps = steps_of(joined)
    if any(step.on_device for step in steps):  # more concurrent blocks would need more GPU memory
        layout = dataclasses.replace(layout, spare_cpus=0)
    capacity = layout.capacity.holding(step.price.resources for step in steps)
    layout = dataclasses.replace(layout, device_held_bytes=capacity.device_held_bytes)
    for step in steps:
        capacity.require(step.name, step.price.resources)
    kept = kept_bytes_of(steps, layout)
    extra_tasks = _extra_tasks(joined, factor, layout, sum(kept.values()))
    held_bytes, free = _free(joined, layout, sum(kept.values()), extra_tasks)
    block_bytes, alone = _block_bytes(joined, factor, free), largest_block(free.exclusive_bytes, factor)
    beside_others = largest_block(free.thread_bytes, factor)
    capacity = capacity_with_blocks(joined, capacity, free.threads, block_bytes)
    device = device_need(joined, capacity, free.threads)
    if device is not None:
        block_bytes = device.fitting(block_bytes, joined.explicit_block_bytes, MIN_BLOCK_BYTES)
        beside_others, alone = min(beside_others, device.largest_block), min(alone, device.largest_alone)
    needed_bytes = task_bytes(block_bytes, factor)
    whole = StagePlan(
        title="write",
        steps=tuple(_all_lines(joined)),
        block_bytes=block_bytes,
        task_factor=factor,
        task_bytes=needed_bytes,
        largest_row_bytes=max(beside_others, block_bytes),
        exclusive_row_bytes=alone,
        capacity=capacity,
        extra_tasks=extra_tasks,
    )
    _require_pending_room(joined, _free(joined, layout, sum(kept.values()), 0)[1])
    projected = layout.reserved_bytes + layout.node_workers * (free.threads * needed_bytes + held_bytes)
    stages = (*_key_stages(joined, whole), whole)
    limits = tuple(
        (s.name, capacity.at_once(s.price.resources, free.threads)) for s in steps if s.price.resources != NO_LIMITS
    )
    said = tuple(dict.fromkeys((word, f"{step.name}: {what}") for step in steps for word, what in step.action.remarks))
    if page_bytes := page_bytes_of(joined):
        said += (
            (
                "pages",
                f"{show_size(page_bytes)} of that in each task, because the files have large pages or the table has many columns",
            ),
        )
    said += (*_assumed(steps, layout), *said_of_order(steps))
    files, size = len(joined.source.files), joined.source.input_bytes
    elsewhere = tuple(step.name for step in steps if is_offloaded(step))
    once = how_to_run_once(joined)
    return Plan(layout, stages, size, files, projected, held_bytes, limits, kept, elsewhere, said, once, device=device)


def planned(
    joined: Fork, layout: Layout, range_bytes: Callable[[Source], int], ranges: Ranges | None = None
) -> tuple[Fork, Plan]:
    """Return a run in as few passes as possible without smaller blocks, and its plan; the arguments are those of `in_one_pass`.

    Raises
    ------
    BudgetError
        If it does not fit even with all passes. Nothing has been started.
    """
    plan, ordered = plan_fork(joined, layout), in_one_pass(joined, layout, range_bytes, ranges)
    if ordered is joined:
        return joined, plan
    try:
        shorter = plan_fork(ordered, layout)
    except BudgetError:
        return joined, plan
    whole, last = plan.stages[-1], shorter.stages[-1]
    if (last.block_bytes, last.extra_tasks) != (whole.block_bytes, whole.extra_tasks):
        return joined, plan
    # Before the last stage, no rows wait for their turn and no table of keys exists, so those stages need no memory for them.
    earlier = plan.stages[: len(shorter.stages) - 1]
    return ordered, dataclasses.replace(shorter, stages=(*earlier, last))


def _assumed(steps: Sequence[Step], layout: Layout) -> Iterator[tuple[str, str]]:
    """Yield what the estimate cannot know: the memory of steps that are not operators of curator_df, and where it ends."""
    if names := assumed_names(steps):
        most_bytes = most_peak_bytes(layout)
        said = (
            f"{FOREIGN_PEAK_FACTOR} x block for {', '.join(names)}. A function that makes Python objects may need more, which "
            f"only running it shows. The peak is then above the estimate, up to {show_size(most_bytes)}, where allocations fail. "
            "profile_memory measures a function, and a BlockKernel states what it needs"
        )
        yield "assumed", said


def assumed_names(steps: Sequence[Step]) -> list[str]:
    """Return the names of steps that are not operators of curator_df and do not state what they need."""
    named = (step.name for step in steps if isinstance(step.action, Graph) and not step.price.is_measured)
    return list(dict.fromkeys(named))


def most_peak_bytes(layout: Layout) -> int:
    """Return the bytes at which allocations of the workers of a node fail, whatever their steps need."""
    return layout.reserved_bytes + layout.node_workers * layout.work_bytes


def _extra_tasks(joined: Fork, factor: float, layout: Layout, kept_bytes: int) -> int:
    """Return the number of additional tasks, beyond those of its threads, that fit into a worker.

    There is one for each spare CPU, and one for each call that works elsewhere.
    """
    steps = [step for step in steps_of(joined) if is_offloaded(step)]
    calls = (layout.capacity.at_once(step.price.resources) if step.price.resources.of_gpu else 1 for step in steps)
    least = joined.explicit_block_bytes or LEAST_BLOCK_BYTES
    for extra_tasks in range(layout.spare_cpus + max(calls, default=0), 0, -1):
        if largest_block(_free(joined, layout, kept_bytes, extra_tasks)[1].thread_bytes, factor) >= least:
            return extra_tasks
    return 0


def _free(joined: Fork, layout: Layout, kept_bytes: int, extra_tasks: int) -> tuple[int, Layout]:
    """Return the fixed memory of the steps in each worker, and the layout that remains for this many additional tasks."""
    tasks = layout.threads + extra_tasks
    held_bytes = held_bytes_of(joined, layout.capacity, tasks) + kept_bytes
    return held_bytes, dataclasses.replace(layout, work_bytes=max(layout.work_bytes - held_bytes, 0), threads=tasks)


def _key_stages(joined: Fork, whole: StagePlan) -> Iterator[StagePlan]:
    """Yield a pass for each deferred step. Its tasks need no more than those of the last pass, and get the same blocks."""
    for program, step in joined.waiting_steps:
        if step.pending is None:
            continue
        before = (_read_line(joined.source), *_step_lines(program.steps))
        for one in step.pending.passes(step.name):
            line = (one.work, one.writer_factor, False)
            if one.of_other is None:
                yield dataclasses.replace(whole, title=one.title, steps=(*before, line))
            else:
                lines = (_read_line(one.of_other.source), *_step_lines(one.of_other.steps), line)
                yield dataclasses.replace(whole, title=one.title, steps=lines, of_input=False)


def _require_pending_room(joined: Fork, layout: Layout) -> None:
    """Refuse deferred steps that are known not to fit; the others do so when they have counted their rows."""
    rows = joined.source.about_rows()
    for step, pending in joined.waiting:
        pending.require_room(step.name, rows, layout)


def _block_bytes(joined: Fork, factor: float, layout: Layout) -> int:
    fitting = largest_block(layout.thread_bytes, factor)
    explicit = joined.explicit_block_bytes
    asked = MIN_BLOCK_BYTES if explicit is None else explicit
    if asked > fitting:
        needed = task_bytes(asked, factor) + 1
        # For one thread, and for workers without earlier runs: sufficient, whatever the layout.
        held_bytes = held_bytes_of(joined, dataclasses.replace(layout.capacity, threads=1), 1)
        cpus, enough = most_cpus(needed + held_bytes, layout), larger_memory(needed + held_bytes, layout)
        held = f", after {show_size(held_bytes)} for steps" if held_bytes else ""
        if page_bytes := page_bytes_of(joined):
            less = "files with smaller pages or fewer columns need less"
            held += f" and for many columns or large pages of the input files ({show_size(page_bytes)}; {less})"
        if layout.client_bytes:
            held += f"; this process has used {show_size(layout.client_bytes)} since the cluster started"
        smaller = f"blocksize={size_to_type(fitting, up=False)} or " if fitting >= MIN_BLOCK_BYTES else ""
        smaller += f"cpus={cpus} or " if cpus else ""
        outputs = len(joined.branches)
        fewer = f", or write fewer than {outputs} outputs in one run" if outputs > 1 else ""
        need, has = show_sizes(needed, layout.thread_bytes)
        tasks = layout.workers * layout.threads
        each = f"each of the {tasks:,} concurrent tasks" if tasks > 1 else "a task"
        raise BudgetError(
            f"blocks of {show_size(asked)} do not fit: {each} needs "
            f"{need} ({factor:.1f} x the block size + a fixed part), but has {has} of the "
            f"{show_size(layout.allowed_bytes)} budget{held}. Use {smaller}memory={size_to_type(enough)}{fewer}"
        )
    return min(fitting, MAX_DEFAULT_BLOCK_BYTES) if explicit is None else explicit


def _all_lines(joined: Fork) -> Iterator[tuple[str, float, bool]]:
    yield _read_line(joined.source)
    yield from _step_lines(joined.stem)
    for branch in joined.branches:
        yield from _step_lines(joined.own_steps(branch))
        name = "write" if len(joined.branches) == 1 else f"write {branch.sink.folder.url}"
        # The estimates of whole runs hold, but writers were not measured separately.
        yield name, branch.sink.writer_factor, False


def _read_line(source: Source) -> tuple[str, float, bool]:
    return "read", source.reader_factor, True


def _step_lines(steps: Sequence[Step]) -> Iterator[tuple[str, float, bool]]:
    for step in steps:
        if step.takes_device and step.gives_device:
            yield f"{step.name} on the GPU", step.device_peak_factor, False
        else:
            yield step.name, step.price.peak_factor, step.price.is_measured
