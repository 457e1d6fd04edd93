# SPDX-License-Identifier: Apache-2.0
"""Receipt of a finished run: rows, bytes, seconds and memory of each step, and the reason of every dropped row."""

from __future__ import annotations

import dataclasses
import html
import io
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from curator_df.arguments import choose
from curator_df.errors import ParameterError
from curator_df.files.storage import QUARANTINE_FOLDER
from curator_df.memory.leaks import LeakReceipt
from curator_df.memory.sizes import show_count, show_duration, show_float, show_size
from curator_df.receipts.earlier import EarlierRun, read_earlier
from curator_df.receipts.model_figures import model_figures, plain_counters
from curator_df.suggestions import suggests_names

LEAST_SECONDS = 0.001
"""Least time of a step for which rows per second are shown."""
SaveKind = Literal["report", "figures", "dataset_card", "croissant", "eu_training_data_summary"]
"""Documents that `Receipt.save` writes."""
SAVE_ENDINGS: Mapping[SaveKind, tuple[str, ...]] = {
    "report": (".html", ".htm"),
    "figures": (".json",),
    "dataset_card": (".md",),
    "croissant": (".jsonld",),  # not .json, which read_jsonl would read from the output folder
    "eu_training_data_summary": (".md",),
}
"""Endings of a file of each kind."""
SHOWN_FOLDERS = 5
"""Number of folders of a partitioned output that the head of a receipt names; ``rows_by_folder`` has all."""


@dataclass(frozen=True)
class RunEvent:
    """Event of a run that a person may want to know about."""

    seconds: float
    """Time since the start of the run in seconds."""
    text: str
    """Description of the event."""
    kind: str = ""
    """Kind of the event: ``retry``, ``leak``, ``kept``, ``recycle``, ``balance`` or ``reuse``."""


@dataclass
class StepReceipt:
    """Totals of one step."""

    name: str
    """Operator or Dask operation."""
    rows_in: int = 0
    """Rows that entered the step."""
    rows_out: int = 0
    """Rows that left the step."""
    seconds: float = 0.0
    """Wall time in the step, summed over all tasks."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Rows dropped, by reason."""
    counters: dict[str, int] = field(default_factory=dict)
    """Counters of the operator."""
    peaks: dict[str, int] = field(default_factory=dict)
    """Peak memory of the step in one worker in bytes, if known."""

    @property
    def rows_dropped(self) -> int:
        """Rows dropped by the step; 0 if it made more rows."""
        return max(self.rows_in - self.rows_out, 0)

    def counted(self) -> str:
        """Return what the operator counted in words, such as ``rows changed 12, tokens 3,400``; empty if nothing."""
        counters = plain_counters(self.counters)
        return ", ".join(f"{name.replace('_', ' ')} {number:,}" for name, number in counters.items() if number)

    @property
    def rows_per_second(self) -> float:
        """Rows that entered per second of a thread in the step; NaN if it took too little time to tell."""
        return self.rows_in / self.seconds if self.seconds >= LEAST_SECONDS else math.nan


@dataclass
class ExchangeReceipt:
    """Comparison of the keys of all rows, before the last pass."""

    step: str
    """Operator that requested it."""
    keys: int
    """Number of rows that were compared."""
    unique: int
    """Number of different keys among these."""
    hash_ranges: int
    """Number of parts into which the keys were partitioned; 0 if they were compared in input order during the last pass."""
    skew: float
    """Size of the largest part as a multiple of the mean."""
    projected_bytes: int
    """Estimated disk space for temporary files, in bytes."""
    key_bytes: int
    """Bytes of keys written to disk and read back."""
    drop_bytes: int
    """Bytes written for the last pass: which rows to drop."""
    spilled_bytes: int
    """Bytes spilled to scratch files because a part did not fit in memory."""
    seconds: float
    """Wall time: collecting keys, comparing them and collecting the rows to drop (for a resumed run: its last part)."""
    details: dict[str, Any] = field(default_factory=dict)
    """Further figures: bands, pairs, comparisons, groups of near duplicates; clusters of vectors; rows matching another table."""

    def __str__(self) -> str:
        if not self.hash_ranges:
            return f"{show_count(self.keys, 'key')}, {self.unique:,} of them unique, compared while rows were written"
        spilled = f", {show_size(self.spilled_bytes)} spilled" if self.spilled_bytes else ""
        said = (
            f"{show_count(self.keys, 'key')} ({show_size(self.key_bytes)}{spilled}), {self.unique:,} of them unique, in "
            f"{show_count(self.hash_ranges, 'hash range')}, the largest {self.skew:.1f} x the mean; {self.seconds:,.1f} s"
        )
        if "matched" in self.details:
            of_kept, folders = show_count(self.details["against"], "kept row"), ", ".join(self.details["folders"])
            said += f"; {show_count(self.details['matched'], 'row')} matching one of {of_kept} in {folders}"
        if "candidate_pairs" in self.details:
            compared = self.details.get("compared")  # rows of one text are not, but make groups
            pairs = show_count(self.details["candidate_pairs"] if compared is None else compared, "pair")
            bands = f"{show_count(self.details['bands'], 'band')}, {self.details['bands_per_iteration']} per iteration"
            how = "found" if compared is None else "compared"
            said += f"; {bands}, {pairs} {how}, {show_count(self.details['groups'], 'group')}"
        if "ignored_shingles" in self.details:
            said += f"; {show_count(self.details['ignored_shingles'], 'common shingle')} ignored"
            said += "".join(f"; in {one['documents']:,} rows: {one['text']!r}" for one in self.details["most_common"])
        if "largest_cluster" in self.details:
            largest = show_count(self.details["largest_cluster"], "row")
            said += f"; {show_count(self.details['clusters'], 'cluster')}, the largest of {largest}"
            said += "".join(
                f"; {self.details[cause]:,} {cause.replace('_', ' ')}"
                for cause in ("null_vectors", "empty_vectors", "zeros_vectors", "not_finite_vectors")
                if self.details.get(cause)
            )
        return said


@suggests_names
@dataclass
class Receipt:
    """Record of a finished run.

    See Also
    --------
    write_parquet, read_receipt, compare_receipts
    """

    output: str
    """Output folder."""
    rows_read: int = 0
    """Rows in the input, including bad ones."""
    rows_written: int = 0
    """Rows in the output."""
    rows_quarantined: int = 0
    """Rows quarantined in `quarantine_folder`."""
    rows_out_of_memory: int = 0
    """Rows among these that did not fit into memory even when each was processed exclusively."""
    files: int = 0
    """Output files."""
    input_bytes: int = 0
    """Size of the input on disk."""
    output_bytes: int = 0
    """Size of the output on disk."""
    rows_by_folder: dict[str, int] = field(default_factory=dict)
    """Rows in each folder of an output with ``partition_on``, such as ``{"lang=en": 12}``."""
    steps: list[StepReceipt] = field(default_factory=list)
    """Totals of each step in order: read, the operators, write."""
    ranges: int = 0
    """Number of ranges."""
    ranges_resumed: int = 0
    """Ranges among these that an earlier run had finished."""
    seconds: float = 0.0
    """Wall time of this run (for a resumed run: its last part)."""
    allowed_bytes: int = 0
    """Memory budget in bytes."""
    projected_bytes: int = 0
    """Estimated peak memory in bytes."""
    measured_bytes: int = 0
    """Actual peak memory in bytes: counted memory of the whole process tree (anonymous pages, shared memory, files changed
    through a mapping), every 50 ms; for workers that `start_cluster` has not started, the largest resident memory of any one of
    them (VmHWM).
    """
    projected_device_bytes: int = 0
    """Estimated peak GPU memory of each worker in bytes; 0 if nothing is on a GPU."""
    measured_device_bytes: int | None = None
    """Actual peak GPU memory in any worker: bytes in use by RMM and bytes reserved by torch; None if neither was measured."""
    device_spilled_bytes: int | None = None
    """Bytes that cuDF spilled from GPUs to the host, in all passes, summed over the workers of the last pass; None if not
    counted."""
    retries: dict[str, int] = field(default_factory=dict)
    """Number of retried ranges, by cause: ``memory``, ``worker lost``, ``exclusive``."""
    leaks: list[LeakReceipt] = field(default_factory=list)
    """Workers whose memory grew after each task."""
    exchanges: list[ExchangeReceipt] = field(default_factory=list)
    """Comparisons before the last pass, one for each drop."""
    settings: dict[str, str] = field(default_factory=dict)
    """Settings, chosen by the user or by the plan, with reasons."""
    arguments: dict[str, int | str] = field(default_factory=dict)
    """Settings as values, for reuse: for `start_cluster` ``memory``, ``cpus`` and, if workers had GPUs, ``gpus`` and
    ``device_memory`` (for `connect` only the two sizes), and if workers were to be restarted ``recycle_after``; for a reader
    ``blocksize`` and, if bad rows were quarantined, ``on_bad_rows``; for a writer ``on_error`` and ``on_oom``.
    """
    tasks_at_a_time: int = 0
    """Number of threads of all workers."""
    outputs: int = 1
    """Number of outputs that the run wrote at once (`write_many`); each has a receipt with its own steps."""
    timeline: list[tuple[float, int]] = field(default_factory=list)
    """Pairs of seconds and the peak bytes of the process tree since the previous point; at most 400."""
    events: list[RunEvent] = field(default_factory=list)
    """Events of the run, the first 200: retried ranges, with the cause, and restarted workers."""
    gpu_use: dict[str, float] = field(default_factory=dict)
    """Mean fraction of the last pass in which a kernel was running (NVML), for each GPU of a cluster on this machine."""
    rejects: str | None = None
    """Folder of the dropped rows, if they were written."""
    quarantine: str | None = None
    """Folder of the quarantined rows if it is not in the output folder: those of ``find_`` operators."""
    advice: list[str] = field(default_factory=list)
    """Advice for the next run."""
    earlier: list[EarlierRun] = field(default_factory=list)
    """Runs of curator_df that wrote this run's input, and those before them; first runs first."""
    recipe_text: str = ""
    """Reader, steps and writer as YAML; empty if they cannot be written to a file. `recipe` returns the whole file."""
    recipe_gap: str = ""
    """Reason why the run cannot be written as a recipe; empty if it can."""
    version: str = ""
    """Version of curator_df."""
    host: str = ""
    """Name of the machine on which the run was started."""
    started: str = ""
    """Date and time at which the run was started, in UTC, as ISO 8601 (for a resumed run: its last part)."""

    @property
    def rows_dropped(self) -> int:
        """Rows dropped by steps."""
        return sum(step.rows_dropped for step in self.steps)

    @property
    def quarantine_folder(self) -> str:
        """Folder of the quarantined rows, if there are any."""
        return self.quarantine or f"{self.output}/{QUARANTINE_FOLDER}"

    @property
    def rows_made(self) -> int:
        """Rows added by steps that make several rows from one."""
        return sum(max(step.rows_out - step.rows_in, 0) for step in self.steps)

    @property
    def retry_seconds(self) -> list[float]:
        """Times at which ranges were retried, among the stored events."""
        return [event.seconds for event in self.events if event.kind == "retry"]

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each step: ``step``, ``rows_in``, ``rows_out``, ``rows_dropped``, ``seconds``, ``rows_per_second``.

        Returns
        -------
        pandas.DataFrame
            Shape (steps, 6), in the order in which the steps ran. Seconds are summed over all tasks, so rows per second
            are those of one thread; they are missing if a step took less than 1 ms.
        """
        columns = ["step", "rows_in", "rows_out", "rows_dropped", "seconds", "rows_per_second"]
        rows = [
            (s.name, s.rows_in, s.rows_out, s.rows_dropped, round(s.seconds, 3), round(s.rows_per_second, 1))
            for s in self.steps
        ]
        return pd.DataFrame(rows, columns=columns)

    def made(self) -> str:
        """Return when, where and with which version the run was started, in words; empty if unknown."""
        when = f"{self.started[:16].replace('T', ' ')} UTC" if self.started else ""
        place = " ".join(part for part in (when, self.host and f"on {self.host}") if part)
        return ", ".join(part for part in (place, self.version and f"curator_df {self.version}") if part)

    def funnel(self) -> pd.DataFrame:
        """Return one row for each step that changed the number of rows, in this run and in the earlier ones that led to it.

        Returns
        -------
        pandas.DataFrame
            ``output`` of the run, ``step``, ``rows_in``, ``rows_dropped``, ``rows_out``, and ``share`` of the rows that
            the first runs read. Runs are connected by their folders: `checkpoint` and the writers store a receipt, and a
            run that reads such a folder has it.
        """
        own = [(step.name, step.rows_in, step.rows_out) for step in self.steps if step.rows_in != step.rows_out]
        runs = [*((run.output, run.steps) for run in self.earlier), (self.output, own)]
        first = max(sum(run.rows_read for run in self.earlier if run.is_first) if self.earlier else self.rows_read, 1)
        rows = [
            (output, name, came, max(came - left, 0), left, left / first)
            for output, steps in runs
            for name, came, left in steps
        ]
        return pd.DataFrame(rows, columns=["output", "step", "rows_in", "rows_dropped", "rows_out", "share"])

    def reasons(self) -> pd.DataFrame:
        """Return one row for each reason why rows were dropped: ``step``, ``reason``, ``rows``, ``share``.

        Returns
        -------
        pandas.DataFrame
            Most rows first; ``share`` refers to all rows read.
        """
        rows = [(s.name, reason, n, n / max(self.rows_read, 1)) for s in self.steps for reason, n in s.dropped.items()]
        table = pd.DataFrame(rows, columns=["step", "reason", "rows", "share"])
        return table.sort_values("rows", ascending=False, kind="stable", ignore_index=True)

    def tables(self) -> list[pd.DataFrame]:
        """Return what the receipt displays: `to_frame` with its columns named in words, and `reasons` if rows were dropped."""
        steps = self.to_frame().rename(columns=lambda name: name.replace("_", " "))
        return [steps, self.reasons()] if any(step.dropped for step in self.steps) else [steps]

    def models(self) -> pd.DataFrame:
        """Return one row for each step with a model: documents and tokens, both also per second, and how full batches were.

        Returns
        -------
        pandas.DataFrame
            Empty if there are no such steps. ``dtype`` is the number format in which a model computed, float32 or
            bfloat16; it is missing for functions, fastText, scikit-learn and servers. For `add_completion`, documents are
            the answers that were requested (not those from the cache), tokens those of prompts and answers as the server
            counts them, and columns about batches are missing. Documents and tokens per second are those
            of one task: seconds in the step are summed over all tasks, without those spent waiting for a turn
            (``resources=``). ``padding_share`` is the share of padding among all tokens that the model read.
            ``batch_tokens_tried`` has the tokens per second of each batch size that took turns at first, in padded
            tokens, and ``batch_tokens`` the size that most workers used afterwards. The peak memory of torch on a GPU,
            of which ``device_allocated_bytes`` were in tensors, is missing if the model ran on CPUs;
            ``process_peak_bytes`` is the peak resident memory of a worker process until the end of the step.
        """
        return model_figures(self.steps)

    def to_json(self) -> dict[str, Any]:
        """Return the receipt as plain values, as stored in ``_curator/receipt.json``."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(stored: dict[str, Any]) -> Receipt:
        """Return the receipt from the output of `to_json`."""
        steps = [StepReceipt(**step) for step in stored["steps"]]
        exchanges = [ExchangeReceipt(**exchange) for exchange in stored["exchanges"]]
        timeline = [tuple(pair) for pair in stored.get("timeline", [])]
        # Receipts of early versions have pairs of seconds and text.
        events = [RunEvent(*e) if isinstance(e, list) else RunEvent(**e) for e in stored.get("events", [])]
        leaks = [LeakReceipt(**leak) for leak in stored.get("leaks", [])]
        earlier = [read_earlier(run) for run in stored.get("earlier", [])]
        made = {"steps": steps, "exchanges": exchanges, "leaks": leaks, "earlier": earlier, "events": events}
        return Receipt(**{**stored, "timeline": timeline, **made})

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        kind: SaveKind | None = None,
        name: str | None = None,
        license: str | None = None,  # noqa: A002 - the usual name
        domains: pd.DataFrame | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the receipt, or a document about the output that follows from it, to a file.

        Parameters
        ----------
        path : str or path
            Name of the file on this machine, such as ``"report.html"`` or ``"receipt.json"``; an existing file is replaced.
        kind : {"report", "figures", "dataset_card", "croissant", "eu_training_data_summary"}, optional
            ``"report"``: one self-contained HTML page with figures, memory over time, steps, drops and settings; the default
            for ``.html``. ``"figures"``: all figures as JSON; the default for ``.json``. ``"dataset_card"``: the card of the
            Hugging Face hub, Markdown. ``"croissant"``: Croissant 1.0 metadata, JSON-LD, to be saved into the output folder,
            with those columns of the first file that are text, numbers, booleans, dates, or lists of them; a column of JSON
            Lines is left out if its first 100 values are null or of mixed types. ``"eu_training_data_summary"``: the European
            Commission's template for the public summary of training content, Markdown, with "not known" where the receipt does
            not know.
        name : str, optional
            Name of the data set in a card or in Croissant metadata. Default: that of the output folder.
        license : str, optional
            License in a card or in Croissant metadata, such as ``"odc-by"``.
        domains : pandas.DataFrame, optional
            Result of `describe_domains` for the summary, which lists domains by share.
        storage_options : mapping, optional
            fsspec options for the output folder, from which a card and Croissant metadata take the format.

        Raises
        ------
        ParameterError
            If the ending of ``path`` is not one of ``kind``, or an option does not belong to it.
        InputError
            If the folder of ``path`` does not exist, or the output folder has no files.

        Examples
        --------
        >>> receipt.save("clean/croissant.jsonld", kind="croissant", license="odc-by")  # doctest: +SKIP
        """
        from curator_df.receipts.saved_documents import require_options, require_parent, save_text, saved_document

        kind = _save_kind(path, kind)
        require_parent(path)
        options: dict[str, Any] = {
            "name": name,
            "license": license,
            "domains": domains,
            "storage_options": storage_options,
        }
        require_options(kind, options)
        if kind == "figures":
            said = json.dumps(self.to_json(), indent=1)
        elif kind == "report":
            from curator_df.receipts.report import report_page

            said = report_page(self)
        else:
            said = saved_document(self, kind, **options)
        save_text(path, said)

    def recipe(self) -> str:
        """Return the text of a recipe file that repeats the run: reader, steps, writer and budget.

        Returns
        -------
        str
            YAML for `load_recipe` and ``curator-df run``. Paths are as they were given, so run it in the same folder.
            ``on_existing=`` is not in it.

        Raises
        ------
        RecipeError
            If a file cannot hold the run: the message names the step with a function, a secret, or an operation of Dask.

        Examples
        --------
        >>> Path("again.yaml").write_text(receipt.recipe())  # doctest: +SKIP
        """
        from curator_df.receipts.recipe_file import recipe_of

        return recipe_of(self)

    def plot(self) -> Any:
        """Plot memory over time, with the budget and the estimated peak; retried ranges are marked.

        Returns
        -------
        matplotlib.figure.Figure
            Notebooks display it; ``figure.savefig("memory.png")`` saves it.

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed.
        ParameterError
            If the receipt has no timeline, because the workers ran on other machines.
        """
        from curator_df.receipts.timeline import timeline_figure

        if not self.timeline:
            raise ParameterError(
                "receipt.plot: this receipt has no timeline, because the workers were not started by start_cluster. Watch such "
                "a run with monitor_memory, and plot that"
            )
        limits = {"allowed_bytes": self.allowed_bytes, "projected_bytes": self.projected_bytes}
        return timeline_figure(self.timeline, self.retry_seconds, **limits)

    def summary(self) -> list[tuple[str, str]]:
        """Return the first lines of the receipt, as (label, value)."""
        memory = f" ({self.rows_out_of_memory:,} out of memory)" if self.rows_out_of_memory else ""
        bad = f", {self.rows_quarantined:,} quarantined{memory}" if self.rows_quarantined else ""
        resumed = f" ({self.ranges_resumed:,} done by an earlier run)" if self.ranges_resumed else ""
        speed = f", {show_size(self.input_bytes / max(self.seconds, 1e-9))}/s" if not self.ranges_resumed else ""
        measured = f"{show_size(self.measured_bytes)} actual peak, {show_size(self.projected_bytes)} estimated peak"
        sizes = f"{show_count(self.files, 'file')}, {show_size(self.output_bytes)} from {show_size(self.input_bytes)}"
        lines = [
            ("rows", f"{self.rows_read:,} read, {self.rows_written:,} written, {self.rows_dropped:,} dropped{bad}"),
            ("memory", f"{measured}, {show_size(self.allowed_bytes)} budget"),
            ("time", f"{show_duration(self.seconds)}{speed}"),
            ("output", f"{self.output}: {sizes}"),
            ("input", f"{show_count(self.ranges, 'split')}{resumed}"),
        ]
        lines[1:1] = [("earlier", _said_of_earlier(run)) for run in self.earlier]
        if made := self.made():
            lines.append(("run", made))
        if self.projected_device_bytes:
            seen = (
                "not measured"
                if self.measured_device_bytes is None
                else f"{show_size(self.measured_device_bytes)} actual peak"
            )
            moved = f"; {show_size(self.device_spilled_bytes)} moved to the host" if self.device_spilled_bytes else ""
            lines.insert(
                2 + len(self.earlier),
                ("gpu", f"{seen}, {show_size(self.projected_device_bytes)} estimated peak on each{moved}"),
            )
        if self.rows_by_folder:
            lines.append(("folders", self._folders()))
        if self.rejects:
            lines.append(("rejects", self.rejects))
        if self.retries:
            lines.append(("retries", ", ".join(f"{number:,} {cause}" for cause, number in self.retries.items())))
        lines += [(gpu, f"busy {share:.0%} of the last pass") for gpu, share in self.gpu_use.items()]
        lines += [("leak", str(leak)) for leak in self.leaks]
        lines += [(step.name, counted) for step in self.steps if (counted := step.counted())]
        lines += [(exchange.step, str(exchange)) for exchange in self.exchanges]
        lines += [(name, value) for name, value in self.settings.items()]
        return lines + [("advice", text) for text in self.advice]

    def _folders(self) -> str:
        largest = sorted(self.rows_by_folder.items(), key=lambda item: (-item[1], item[0]))[:SHOWN_FOLDERS]
        more = len(self.rows_by_folder) - len(largest)
        named = ", ".join(f"{folder}: {show_count(rows, 'row')}" for folder, rows in largest)
        return named + (f", and {more:,} more" if more else "")

    def __rich__(self) -> Any:
        """Render for a terminal with rich."""
        from rich.console import Group

        from curator_df.receipts.rich_tables import grid_of, table_of

        return Group(grid_of(self.summary()), *map(table_of, self.tables()))

    def __str__(self) -> str:
        from rich.console import Console

        text = io.StringIO()
        Console(file=text, width=110, force_terminal=False, force_jupyter=False).print(self)
        return text.getvalue().rstrip()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th><td style='text-align:left'>"
            f"{html.escape(value)}</td></tr>"
            for name, value in self.summary()
        )
        return f"<table>{head}</table>" + "".join(map(html_table, self.tables()))


def _said_of_earlier(run: EarlierRun) -> str:
    bad = f", {run.rows_quarantined:,} quarantined" if run.rows_quarantined else ""
    dropped = sum(max(came - left, 0) for _, came, left in run.steps)
    return f"{run.rows_read:,} read, {run.rows_written:,} written, {dropped:,} dropped{bad}: {run.output}"


def html_table(frame: pd.DataFrame) -> str:
    """Return a small table of figures as HTML; missing values are empty."""
    formatters: dict[Any, Any] = {name: "{:,}".format for name in frame.columns if frame[name].dtype == "int64"}
    if "share" in frame.columns:
        formatters["share"] = "{:.2%}".format
    return frame.to_html(index=False, na_rep="", float_format=show_float, formatters=formatters)


def _save_kind(path: str | os.PathLike[str], kind: SaveKind | None) -> SaveKind:
    """Return the kind of a document to save, after a check of the file's ending."""
    suffix = Path(path).suffix.lower()
    if kind is None:
        kind = "report" if suffix in SAVE_ENDINGS["report"] else "figures"
        if suffix not in (*SAVE_ENDINGS["report"], *SAVE_ENDINGS["figures"]):
            raise ParameterError(
                f"save: {os.fspath(path)!r} must end in .html (a page) or .json (all figures), or set kind= for another document"
            )
    choose("save", "kind", kind, SaveKind)
    if suffix not in SAVE_ENDINGS[kind]:
        raise ParameterError(
            f"save: {os.fspath(path)!r} must end in {' or '.join(SAVE_ENDINGS[kind])} with kind={kind!r}"
        )
    return kind
