# SPDX-License-Identifier: Apache-2.0
"""What a journal stores does not change by accident: a run that was begun before a change must be resumed or refused.

``tests/data/journals.json`` has the files of a finished run of each kind, with the names and types of all that they hold. After
a change on purpose, raise `journal.FORMAT` and run::

    python -m tests.core.ranges.test_journal_format   # writes the file again
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import curator_df as cdf
from curator_df.core.ranges.journal import FORMAT
from curator_df.core.runner.passes import PassRunner
from tests.core.runner.fake_client import inline_cluster
from tests.models.tokens.tiny_tokenizers import tiny
from tests.models.vector_rows import vectors, write_rows

STORED = Path(__file__).resolve().parents[2] / "data/journals.json"
BY_NAME = {
    "dropped",
    "counters",
    "peaks",
    "details",
    "parameters",
    "output",
    "read",
    "settings",
    "arguments",
}
"""Entries whose names depend on the operation and its arguments."""
OF_THE_DAY = {"advice", "events", "leaks", "timeline"}
"""Lists of a receipt that are empty or not, as the machine has time."""
SCHEME = cdf.minhash.Scheme("words", 2, num_bands=4, minhashes_per_band=2)
STEPS = {
    "plain": lambda docs: docs.curate.keep_where("id % 3 != 0"),
    "exact": lambda docs: docs.curate.drop_exact_duplicates(),
    "near": lambda docs: docs.curate.drop_near_duplicates(scheme=SCHEME, jaccard_threshold=0.9, bands_per_iteration=2),
    "semantic": lambda docs: docs.curate.drop_semantic_duplicates(eps=0.05, num_clusters=2),
    "parts": lambda docs: docs.curate.remove_repeated_parts("paragraphs"),
    "numbers": lambda docs: docs.curate.add_ids(into="number", dense=True),
    "join": lambda docs: docs.curate.join(docs[["id"]].assign(score=1.0), on="id"),
}
"""Steps before `write_parquet`."""
WRITERS = {
    "shuffle": lambda docs, home: docs.curate.shuffle_rows(home / "out"),
    "blend": lambda docs, home: cdf.blend({"a": docs, "b": docs}, home / "out", weights={"a": 1, "b": 2}),
    "tokens": lambda docs, home: docs.curate.write_tokens(home / "out", tokenizer=home / "tokenizer", pack=64),
}
NEEDS = {"semantic": "sklearn", "tokens": "tokenizers"}
"""Package that a run of a kind needs."""


def shape(value: Any, name: str = "") -> Any:
    """Return the names and types of a value of JSON; of a list, those of its first element."""
    if isinstance(value, dict):
        return "by name" if name in BY_NAME else {key: shape(each, key) for key, each in value.items()}
    if name in OF_THE_DAY:
        return "a list"
    if isinstance(value, list):
        return [shape(each, name) for each in value[:1]]
    return type(value).__name__


def journal_of(kind: str, home: Path) -> dict[str, Any]:
    """Return the shape of each file of the journals that a run of a kind leaves."""
    rows = [{"id": n, "text": f"some words and number {n % 7} of them"} for n in range(40)]
    (home / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    docs = cdf.read_jsonl(home / "in.jsonl")
    if kind == "semantic":
        docs = cdf.read_parquet(write_rows(home / "in", vectors(40)))
    if kind == "tokens":
        tiny(home / "tokenizer")
    with inline_cluster(memory="2GB", cpus=2), mock.patch.object(PassRunner, "clear"):
        if kind in STEPS:
            cdf.write_parquet(STEPS[kind](docs), home / "out", workdir=home / "work")
        else:
            WRITERS[kind](docs, home)
    found = {}
    receipt = home / "out/_curator/receipt.json"  # a resumed run reads it only if nothing is left to do
    for path in sorted(set(home.rglob("_curator/**/*.json*")) - {receipt}):
        lines = path.read_text().splitlines()
        values = [json.loads(line) for line in lines[:1]] if path.suffix == ".jsonl" else [json.loads("\n".join(lines))]
        place = re.sub(r"-[0-9a-f]{16}/", "/", str(path.relative_to(home)))
        found[place] = shape(values[0], path.stem)
    return found


@pytest.mark.parametrize("kind", [*STEPS, *WRITERS])
def test_journals_hold_what_their_format_says(tmp_path, kind):
    if kind in NEEDS:
        pytest.importorskip(NEEDS[kind])
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    assert stored["format"] == FORMAT, "write tests/data/journals.json again: see the top of this file"
    found = journal_of(kind, tmp_path)
    assert found == stored["journals"][kind], (
        f"{kind}: raise FORMAT in core/ranges/journal.py, see the top of this file"
    )
    if kind == "near":
        assert any("/near" in place or "pairs" in place for place in found)


def write_format() -> None:
    """Write the files of a run of each kind; all packages that the kinds need have to be there."""
    journals = {}
    for kind in (*STEPS, *WRITERS):
        with tempfile.TemporaryDirectory() as home:
            journals[kind] = journal_of(kind, Path(home))
    STORED.write_text(json.dumps({"format": FORMAT, "journals": journals}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_format()
