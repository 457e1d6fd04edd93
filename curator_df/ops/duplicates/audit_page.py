# SPDX-License-Identifier: Apache-2.0
"""HTML page of an audit: pairs of texts side by side, without scripts, fonts or other files."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import pandas as pd

from curator_df.ops.duplicates.word_diff import Piece

STYLE = """
.audit { font: 15px/1.5 system-ui, sans-serif; max-width: 1400px; margin: 0 auto; color: #1b1b1f }
.audit h1 { font-size: 22px } .audit h2 { font-size: 15px; margin: 0 0 6px }
.audit table { border-collapse: collapse; margin: 8px 0 20px } .audit td, .audit th { padding: 3px 12px 3px 0; text-align: left }
.audit .pair { border-top: 1px solid #c9c9d2; padding: 14px 0 }
.audit .sides { display: grid; grid-template-columns: 1fr 1fr; gap: 18px }
.audit .side { background: #f7f7f9; padding: 10px 12px; white-space: pre-wrap; overflow-wrap: anywhere; max-height: 420px;
  overflow: auto }
.audit .place { color: #5c5c66; font-size: 12px; overflow-wrap: anywhere }
.audit .diff { margin-top: 8px; overflow-wrap: anywhere }
.audit del { background: #ffd9d6; text-decoration: none } .audit ins { background: #d3f2d6; text-decoration: none }
.audit .skipped { color: #5c5c66; font-style: italic } .audit .not { color: #a4260f; font-weight: 600 }
@media (max-width: 800px) { .audit .sides { grid-template-columns: 1fr } }
"""
TAGS = {"same": "{}", "left": "<del>{}</del>", "right": "<ins>{}</ins>", "skipped": "<span class='skipped'>[{}]</span>"}


def audit_page(
    table: pd.DataFrame,
    diffs: Sequence[Sequence[Piece]],
    precision: pd.DataFrame,
    lines: Sequence[tuple[str, str]],
    measure: str,
    *,
    is_whole: bool = True,
) -> str:
    """Return the page of an audit, or only its content for a notebook."""
    head = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in lines)
    rates = precision.to_html(float_format="{:.3f}".format, border=0)
    numbered: Any = table.iterrows()
    body = "".join(_pair(number, dict(row), diffs[number], measure) for number, row in numbered)
    said = (
        "Left: the dropped row. Right: the row that is kept for it, or, if none is kept, the row that it matched. "
        "Below: words of the left text only, and of the right only."
    )
    marks = said.replace("words of the left text only", "<del>words of the left text only</del>").replace(
        "of the right only", "<ins>of the right only</ins>"
    )
    content = (
        f"<style>{STYLE}</style><div class='audit'><h1>Deleted duplicates</h1><table>{head}</table>{rates}<p>{marks}</p>"
        f"{body}</div>"
    )
    if not is_whole:
        return content
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>Deleted duplicates - curator_df</title></head>"
        f"<body>{content}</body></html>\n"
    )


def _pair(number: Any, row: dict[Any, Any], diff: Sequence[Piece], measure: str) -> str:
    sides = "".join(
        f"<div><div class='place'>{_place(row, prefix)}</div><div class='side'>{_escaped(row[f'{prefix}text'])}</div></div>"
        for prefix in ("", "other_")
    )
    verdict = "unknown" if pd.isna(row["is_duplicate"]) else "duplicate" if row["is_duplicate"] else "not a duplicate"
    shown = f"<span class='not'>{verdict}</span>" if verdict.startswith("not") else verdict
    source = f", {_escaped(row['source'])}" if "source" in row else ""
    value = "unknown" if pd.isna(row["recomputed"]) else f"{row['recomputed']:.3f}"
    return (
        f"<section class='pair' id='pair-{number}'><h2>Pair {number}{source}: {measure} {value}, {shown}</h2>"
        f"<div class='sides'>{sides}</div><div class='diff'>{' '.join(map(_tagged, diff))}</div></section>"
    )


def _tagged(piece: Piece) -> str:
    return TAGS[piece.kind].format(html.escape(piece.words))


def _place(row: dict[Any, Any], prefix: str) -> str:
    file = row[f"{prefix}file"]
    return "another table" if pd.isna(file) else f"{_escaped(file)}, offset {row[f'{prefix}offset']:,}"


def _escaped(value: Any) -> str:
    return "<em>null</em>" if pd.isna(value) else html.escape(str(value))
