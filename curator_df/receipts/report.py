# SPDX-License-Identifier: Apache-2.0
"""HTML page of a receipt: without scripts, fonts or other files, so that a browser can show it years later."""

from __future__ import annotations

import html
import math
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from curator_df.memory.sizes import show_count, show_duration, show_size
from curator_df.receipts.drawing import OVER, TASKS, bar
from curator_df.receipts.receipt import Receipt
from curator_df.receipts.timeline import timeline_picture

MOST_EXAMPLES = 3
"""Maximum number of examples for each reason."""
MOST_CHARS = 300
"""Maximum number of characters of an example."""
MOST_ROW_GROUP_BYTES = 32_000_000
"""Size above which a row group is not read, decompressed and without the columns that are not needed."""
MOST_BYTES = 256_000_000
"""Maximum number of bytes that are read."""
FOUND = ("reject_step", "reject_reason", "reject_value")
TEXT = "text"
"""Column that is shown if there is one; else the largest column of text."""

Reason = tuple[str, str]


@dataclass(frozen=True)
class Example:
    """A dropped row."""

    text: str
    """Beginning of its text, with white space as single spaces."""
    value: float | None
    """Value that broke the rule, if the step gives one."""


def dropped_examples(folder: str, reasons: Collection[Reason]) -> dict[Reason, list[Example]]:
    """Return a few rows for each pair of step and reason, from a local folder of rejects.

    Parameters
    ----------
    folder : str
        The folder; an empty result if it is not a local one or holds no rejects any more.
    reasons : collection of (str, str)
        Pairs of step and reason for which rows are looked for.
    """
    found: dict[Reason, list[Example]] = {reason: [] for reason in reasons}
    missing = set(reasons)
    for batch in _batches(folder):
        for step, reason, value, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            examples = found.get((step, reason))
            if examples is not None and len(examples) < MOST_EXAMPLES and text is not None:
                examples.append(Example(_shortened(text), value))
                if len(examples) == MOST_EXAMPLES:
                    missing.discard((step, reason))
        if not missing:
            break
    return {reason: examples for reason, examples in found.items() if examples}


def _batches(folder: str) -> Iterator[Any]:
    """Yield step, reason, value and the beginning of the text of rejects, in the order of their files."""
    read = 0
    names = sorted(name for name in os.listdir(folder) if name.endswith(".parquet")) if os.path.isdir(folder) else []
    for name in names:
        with pq.ParquetFile(os.path.join(folder, name)) as file:
            if not {*FOUND} <= set(file.schema_arrow.names):
                return  # these are not rejects of this version
            for group in range(file.num_row_groups):
                sizes = _sizes(file.metadata.row_group(group))
                text = _text_column(file.schema_arrow, sizes)
                if text is None:
                    return
                size = sum(sizes.get(column, 0) for column in (*FOUND, text))
                if size > MOST_ROW_GROUP_BYTES:
                    continue
                read += size
                if read > MOST_BYTES:
                    return
                table = file.read_row_group(group, columns=[*FOUND, text])
                yield from table.select([*FOUND, text]).to_batches(max_chunksize=1_000)


def _sizes(group: Any) -> dict[str, int]:
    columns = [group.column(place) for place in range(group.num_columns)]
    return {column.path_in_schema: column.total_uncompressed_size for column in columns}


def _text_column(schema: Any, sizes: dict[str, int]) -> str | None:
    names = [
        each.name
        for each in schema
        if (pa.types.is_string(each.type) or pa.types.is_large_string(each.type))
        and not each.name.startswith("reject_")
    ]
    return TEXT if TEXT in names else max(names, key=lambda name: sizes.get(name, 0), default=None)


def _shortened(text: str) -> str:
    said = " ".join(text[: 2 * MOST_CHARS].split())
    return said if len(said) <= MOST_CHARS and len(text) <= 2 * MOST_CHARS else said[: MOST_CHARS - 1] + "…"


SHOWN_REASONS = 40
"""Maximum number of reasons in the table; ``receipt.reasons()`` has all."""
SHOWN_EXAMPLES = 12
"""Maximum number of reasons with examples."""
SHOWN_EVENTS = 20
SHOWN_FOLDERS = 20

STYLE = """
:root { --text: #1c2733; --soft: #5b6b7b; --line: #dfe5ea; --page: #ffffff; --tile: #f5f7f9;
        --bar: #3b82b6; --drop: #d98b3a; --bad: #c0392b; --good: #2e8b57; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e9ee; --soft: #9aa8b5; --line: #33404c; --page: #151b21; --tile: #1e262e;
          --bar: #5aa2d6; --drop: #e0a05c; --bad: #e8695b; --good: #5cbf8a; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; color: var(--text);
       background: var(--page); max-width: 1040px; margin: 0 auto; padding: 2rem 1.2rem 4rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2.4rem 0 .6rem; }
p.sub { color: var(--soft); margin: .2rem 0 1.4rem; overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(210px, 1fr)); gap: .8rem; }
.tile { background: var(--tile); border-radius: 10px; padding: .9rem 1rem; }
.tile b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: .85rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .35rem .7rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.share { width: 26%; } td.name { white-space: nowrap; } td.name small { white-space: normal; }
.bar { height: .62rem; margin-top: .42rem; border-radius: 3px; background: var(--bar); min-width: 1px; }
.bar.drop { background: var(--drop); }
.track { margin: .25rem 0 .9rem; }
.label { display: flex; justify-content: space-between; font-size: .9rem; }
ul.advice { padding: 0; list-style: none; margin: 0; }
ul.advice li { border-left: 4px solid var(--drop); background: var(--tile); padding: .55rem .9rem; margin: .4rem 0;
               border-radius: 0 8px 8px 0; overflow-wrap: anywhere; }
ul.advice li.fine { border-color: var(--good); }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--soft); font-size: 12px; }
@media screen and (max-width: 640px) { th.share, td.share { display: none; } th, td { padding-right: .5rem; }
  .picture svg { min-width: 620px; } }
footer { color: var(--soft); font-size: .8rem; margin-top: 3rem; }
"""


def report_page(receipt: Receipt) -> str:
    """Return the page as HTML."""
    sections = [
        ("Memory over time", _timeline(receipt)),
        ("Memory: budget, estimated peak, actual peak", _memory(receipt)),
        ("Advice for the next run", _advice(receipt)),
        ("Steps", _steps(receipt)),
        ("Models and GPUs", _models(receipt)),
        ("Why rows were dropped", _reasons(receipt)),
        ("Examples of dropped rows", _examples(receipt)),
        ("From the first input to this output", _funnel(receipt)),
        ("Quarantined rows", _aside(receipt)),
        ("Comparisons of all rows", _exchanges(receipt)),
        ("Retries and other events", _retries(receipt)),
        ("Output by folder", _folders(receipt)),
        ("Settings and reasons", _settings(receipt)),
    ]
    body = "".join(f"<h2>{title}</h2>{content}" for title, content in sections if content)
    output = html.escape(receipt.output)
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{output} - curator_df</title><style>{STYLE}</style></head><body>"
        f"<h1>Receipt</h1><p class='sub'>{output}<br>{html.escape(receipt.made())}</p>{_tiles(receipt)}{body}"
        f"<footer>Written by curator_df. Sizes are decimal: 1 GB is 10<sup>9</sup> bytes. {_how_measured(receipt)}</footer>"
        "</body></html>\n"
    )


def _tiles(receipt: Receipt) -> str:
    kept = receipt.rows_written / max(receipt.rows_read, 1)
    speed = "" if receipt.ranges_resumed else f"{show_size(int(receipt.input_bytes / max(receipt.seconds, 1e-9)))}/s"
    resumed = f"{receipt.ranges_resumed:,} of {receipt.ranges:,} input splits were finished by an earlier run"
    tiles = [
        (f"{receipt.rows_written:,}", f"rows written of {receipt.rows_read:,} read ({kept:.1%})"),
        (
            show_size(receipt.measured_bytes),
            f"actual peak of memory, with a budget of {show_size(receipt.allowed_bytes)}",
        ),
        (show_duration(receipt.seconds), speed or resumed),
        (
            show_size(receipt.output_bytes),
            f"in {show_count(receipt.files, 'file')}, from {show_size(receipt.input_bytes)}",
        ),
    ]
    shown = "".join(f"<div class='tile'><b>{big}</b><span>{html.escape(small)}</span></div>" for big, small in tiles)
    return f"<div class='tiles'>{shown}</div>"


def _how_measured(receipt: Receipt) -> str:
    if receipt.timeline:
        return "Memory is the counted memory of all processes together, sampled every 50 ms."
    one = "Memory is the peak resident memory (VmHWM) of any one worker process, as reported after its tasks."
    return one if receipt.measured_bytes else ""


def _timeline(receipt: Receipt) -> str:
    if not receipt.timeline:
        return ""
    limits = {"allowed_bytes": receipt.allowed_bytes, "projected_bytes": receipt.projected_bytes}
    return f"<div class='wide picture'>{timeline_picture(receipt.timeline, receipt.retry_seconds, **limits)}</div>"


def _memory(receipt: Receipt) -> str:
    if not receipt.allowed_bytes:
        return ""
    widest = max(receipt.allowed_bytes, receipt.projected_bytes, receipt.measured_bytes)
    lines = []
    for name, held in (
        ("budget", receipt.allowed_bytes),
        ("estimated peak", receipt.projected_bytes),
        ("actual peak", receipt.measured_bytes),
    ):
        color = OVER if held > receipt.allowed_bytes else TASKS
        share = f"{show_size(held)} ({held / receipt.allowed_bytes:.0%})"
        lines.append(
            f"<div class='label'><span>{name}</span><span>{share}</span></div>"
            f"<div class='track'>{bar([(held, color)], widest)}</div>"
        )
    return "".join(lines)


def _advice(receipt: Receipt) -> str:
    items = [f"<li>{html.escape(text)}</li>" for text in receipt.advice]
    return f"<ul class='advice'>{''.join(items) or '<li class=fine>Nothing to report.</li>'}</ul>"


def _steps(receipt: Receipt) -> str:
    longest = max((step.seconds for step in receipt.steps), default=0.0) or 1.0
    rows = []
    for step in receipt.steps:
        counted = step.counted()
        name = html.escape(step.name) + (f"<br><small>{html.escape(counted)}</small>" if counted else "")
        dropped = step.rows_dropped
        cells = [f"{step.rows_in:,}", f"{dropped:,}" if dropped else "", f"{step.rows_out:,}"]
        rate = "" if math.isnan(step.rows_per_second) else f"{step.rows_per_second:,.0f}"
        rows.append([name, *cells, rate, f"{step.seconds:,.1f}", _bar(step.seconds / longest)])
    heads = ["step", "rows in", "dropped", "rows out", "rows per second", "seconds", ""]
    note = "Seconds of a step are summed over all tasks, so they may exceed the wall time; rows per second are those "
    return _table(heads, rows, numbers=(1, 2, 3, 4, 5), share=6) + _sub(f"{note}that enter, for one thread.")


def _models(receipt: Receipt) -> str:
    shown = ("{}", "{}", "{:,}", "{:,.1f}", "{:,.0f}", "{:.1%}", "{:,.1f}", "{:,}")
    rows = []
    figures: list[dict[Any, Any]] = receipt.models().drop(columns="tokens").to_dict("records")
    for one in figures:
        cells = ["" if pd.isna(value) else form.format(value) for form, value in zip(shown, one.values(), strict=False)]
        tried = [f"{size:,}: {rate:,.0f}" for size, rate in one["batch_tokens_tried"].items()]
        on_device = one["device_reserved_bytes"]
        cells += [", ".join(tried), "no device" if pd.isna(on_device) else show_size(on_device)]
        rows.append([html.escape(cell) for cell in cells])
    heads = ["step", "numbers", "documents", "per second", "tokens per second", "padding", "documents per batch"]
    heads += ["batches halved", "tokens per second of batch sizes tried", "peak on a GPU"]
    used = ", ".join(f"{html.escape(gpu)} {share:.0%}" for gpu, share in receipt.gpu_use.items())
    at_work = _sub(f"Fraction of the last pass in which a kernel ran: {used}.") if used else ""
    return (_table(heads, rows, numbers=tuple(range(2, 8))) if rows else "") + at_work


def _reasons(receipt: Receipt) -> str:
    table = receipt.reasons()
    if not len(table):
        return ""
    most = int(table.rows.max())
    rows = [
        [html.escape(step), html.escape(reason), f"{count:,}", f"{share:.2%}", _bar(count / most, "drop")]
        for step, reason, count, share in table.head(SHOWN_REASONS).itertuples(index=False)
    ]
    shown = _table(["step", "reason", "rows", "of all rows", ""], rows, numbers=(2, 3), share=4)
    more = len(table) - SHOWN_REASONS
    kept = f"They are in {html.escape(receipt.rejects)}." if receipt.rejects else ""
    return shown + _sub(f"and {more:,} more reasons. " if more > 0 else "", kept)


def _examples(receipt: Receipt) -> str:
    """Return a few of the dropped rows for each reason, if the run has written them to a local folder."""
    if not receipt.rejects:
        return ""
    table = receipt.reasons().head(SHOWN_EXAMPLES)
    reasons = list(zip(table["step"], table["reason"], strict=True))
    try:
        found = dropped_examples(receipt.rejects, reasons)
    except (OSError, pa.ArrowException) as exc:
        return _sub(f"The rejects in {html.escape(receipt.rejects)} cannot be read: {html.escape(str(exc))}")
    rows = [
        [html.escape(reason), "" if each.value is None else f"{each.value:,.6g}", html.escape(each.text)]
        for (_, reason), examples in found.items()
        for each in examples
    ]
    note = f"The first rows of each reason, truncated to {MOST_CHARS} characters."
    return _table(["reason", "value", "text"], rows, numbers=(1,)) + _sub(note) if rows else ""


def _funnel(receipt: Receipt) -> str:
    if not receipt.earlier:
        return ""
    rows = [
        [
            html.escape(step),
            html.escape(output),
            f"{came:,}",
            f"{dropped:,}" if dropped else "",
            f"{left:,}",
            _bar(min(share, 1)),
        ]
        for output, step, came, dropped, left, share in receipt.funnel().itertuples(index=False)
    ]
    heads = ["step", "run", "rows in", "dropped", "rows out", ""]
    return _table(heads, rows, numbers=(2, 3, 4), share=5) + _sub("Runs whose outputs this run read are included.")


def _aside(receipt: Receipt) -> str:
    if not receipt.rows_quarantined:
        return ""
    others = receipt.rows_quarantined - receipt.rows_out_of_memory
    rows = [
        ["could not be read, or a step failed on them", f"{others:,}"],
        ["did not fit into the memory budget, even exclusively", f"{receipt.rows_out_of_memory:,}"],
    ]
    place = f"{html.escape(receipt.quarantine_folder)} contains the file, offset and reason of each."
    return _table(["rows that", "rows"], rows, numbers=(1,)) + _sub(place)


def _exchanges(receipt: Receipt) -> str:
    rows = [
        [
            html.escape(one.step),
            f"{one.keys:,}",
            f"{one.unique:,}",
            f"{one.hash_ranges:,}",
            f"{one.skew:.1f} x",
            show_size(one.key_bytes),
            show_size(one.spilled_bytes),
            f"{one.seconds:,.1f}",
        ]
        for one in receipt.exchanges
    ]
    heads = ["step", "keys", "unique", "hash ranges", "largest range", "keys on disk", "spilled", "seconds"]
    return _table(heads, rows, numbers=tuple(range(1, 8))) if rows else ""


def _retries(receipt: Receipt) -> str:
    if not receipt.retries and not receipt.events:
        return ""
    counts = ", ".join(f"{number:,} {html.escape(cause)}" for cause, number in receipt.retries.items())
    rows = [[f"{event.seconds:,.1f}", html.escape(event.text)] for event in receipt.events[:SHOWN_EVENTS]]
    more = len(receipt.events) - SHOWN_EVENTS
    table = _table(["second", "event"], rows) if rows else ""
    return _sub(counts) + table + _sub(f"and {more:,} more" if more > 0 else "")


def _folders(receipt: Receipt) -> str:
    largest = sorted(receipt.rows_by_folder.items(), key=lambda item: (-item[1], item[0]))
    rows = [[html.escape(folder), f"{count:,}"] for folder, count in largest[:SHOWN_FOLDERS]]
    more = len(largest) - SHOWN_FOLDERS
    return (
        _table(["folder", "rows"], rows, numbers=(1,)) + _sub(f"and {more:,} more" if more > 0 else "") if rows else ""
    )


def _settings(receipt: Receipt) -> str:
    rows = [[html.escape(name), html.escape(value)] for name, value in receipt.settings.items()]
    for name, value in receipt.arguments.items():
        shown = f"{value:,}" if isinstance(value, int) else html.escape(value)
        rows.append([html.escape(name), f"{shown} (as an argument)"])
    return _table(["setting", "value and reason"], rows) if rows else ""


def _table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = (), share: int | None = None
) -> str:
    """Return a table of cells that are already HTML."""

    def classed(tag: str, place: int, content: str) -> str:
        kind = "number" if place in numbers else "share" if place == share else "name" if place == 0 else ""
        return f"<{tag}{f' class={kind}' if kind else ''}>{content}</{tag}>"

    head = "".join(classed("th", place, name) for place, name in enumerate(heads))
    body = "".join(f"<tr>{''.join(classed('td', place, cell) for place, cell in enumerate(row))}</tr>" for row in rows)
    return f"<div class='wide'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _bar(share: float, kind: str = "") -> str:
    return f"<div class='bar {kind}' style='width:{100 * share:.1f}%'></div>"


def _sub(*texts: str) -> str:
    text = "".join(texts).strip()
    return f"<p class='sub'>{text}</p>" if text else ""
