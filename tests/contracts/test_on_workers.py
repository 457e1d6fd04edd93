# SPDX-License-Identifier: Apache-2.0
"""One run of each kind in worker processes writes the rows, and counts them, as the same run in this process does.

Most tests of runs take `inline_cluster`, which runs each task in this process. That workers give the same is held here, for
every kind of run at once; what only processes can do (die, run out of memory, be started again) is in tests/faults.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import curator_df as cdf
from curator_df.core.runner import run
from tests.core.runner.fake_client import inline_cluster

ROWS = 240
WORDS = cdf.minhash.FINEWEB


def write_corpus(folder: Path) -> None:
    """Write rows of which two in three repeat the text of an earlier one, every third with one word more."""
    folder.mkdir()
    rows = [
        {
            "id": number,
            "text": " ".join(f"w{number % 80}.{place}" for place in range(60)) + ("\n\nmore" if number >= 160 else ""),
            "lang": ("en", "de", None)[number % 3],
            "score": number * 37 % 101,
        }
        for number in range(ROWS)
    ]
    for part in range(3):
        lines = (json.dumps(row) + "\n" for row in rows[part * 80 : part * 80 + 80])
        (folder / f"{part}.jsonl").write_text("".join(lines) + ("no JSON\n" if part == 1 else ""))


def is_wanted(block: Any) -> Any:
    """Run out of memory on many rows, raise on one, and want most."""
    if len(block) > 50:
        raise MemoryError("no room for so many")
    if (block["id"] == 7).any():
        raise ZeroDivisionError("seven")
    return block["id"] % 5 != 0


def lengths(block: Any) -> Any:
    """Stand for a function of the user that Dask maps."""
    return block.assign(length=block["text"].str.len())


def filtered(docs: Any, out: Path) -> Any:
    chain = docs.map_partitions(lengths, meta=lengths(docs._meta)).pipe(cdf.keep_where, is_wanted, reason="unwanted")
    return cdf.write_parquet(chain, out, rejects=out.with_name("rejects"), on_error="quarantine")


def profiled(docs: Any, out: Path) -> Any:
    chain = docs.pipe(cdf.normalize_unicode).pipe(cdf.add_profile, cdf.profiles.FINEWEB_C4)
    return cdf.write_jsonl(chain.pipe(cdf.redact_pii), out, compression="zstd")


def without_exact_duplicates(docs: Any, out: Path) -> Any:
    return cdf.write_parquet(docs.pipe(cdf.drop_exact_duplicates, keep=cdf.best("score")), out)


def without_repeated_lines(docs: Any, out: Path) -> Any:
    return cdf.write_parquet(docs.pipe(cdf.remove_repeated_parts, "paragraphs"), out)


def without_near_duplicates(docs: Any, out: Path) -> Any:
    return cdf.write_parquet(docs.pipe(cdf.drop_near_duplicates, scheme=WORDS, jaccard_threshold=0.6), out)


def of_kept_signatures(docs: Any, out: Path) -> Any:
    kept = cdf.checkpoint(docs.pipe(cdf.add_minhash, scheme=WORDS), out.with_name("signatures"))
    clean = kept.pipe(cdf.drop_near_duplicates, scheme=WORDS, jaccard_threshold=0.6, signatures="minhash")
    return cdf.write_parquet(clean.drop(columns="minhash"), out)


def of_groups(docs: Any, out: Path) -> Any:
    groups = cdf.find_exact_duplicates(docs)
    assert Path(cdf.read_receipt(groups).output).is_dir()
    return cdf.write_parquet(docs.pipe(cdf.drop_exact_duplicates, groups=groups), out)


def numbered(docs: Any, out: Path) -> Any:
    return cdf.write_parquet(docs.pipe(cdf.add_ids, into="number", dense=True).pipe(cdf.keep_where, "id % 2 == 0"), out)


def joined(docs: Any, out: Path) -> Any:
    parts = docs.pipe(cdf.split_documents).pipe(cdf.join_documents, max_chars=200)
    return cdf.write_parquet(parts, out)


def split(docs: Any, out: Path) -> Any:
    return cdf.write_by(docs.dropna(subset=["lang"]), out, partition_on="lang").receipt


def shuffled(docs: Any, out: Path) -> Any:
    cdf.shuffle_rows(docs, out, seed=3)
    return cdf.read_receipt(out)


def blended(docs: Any, out: Path) -> Any:
    parts = {"low": docs.pipe(cdf.keep_where, "id < 100"), "high": docs.pipe(cdf.keep_where, "id >= 100")}
    return cdf.read_receipt(cdf.blend(parts, out, epochs={"low": 2, "high": 0.5}))


RUNS = (
    filtered,
    profiled,
    without_exact_duplicates,
    without_repeated_lines,
    without_near_duplicates,
    of_kept_signatures,
    of_groups,
    numbered,
    joined,
    split,
    shuffled,
    blended,
)


def written_by(write: Callable[[Any, Path], Any], home: Path) -> tuple[dict[str, Any], list[Any]]:
    """Run once; return the rows of each folder, file by file, and what the receipt counts."""
    docs = cdf.read_jsonl(str(home.parents[1] / "in"), on_bad_rows="quarantine")
    receipt = write(docs, home / "out")
    readers = {"*.parquet": pd.read_parquet, "*.jsonl.zst": lambda path: pd.read_json(path, lines=True)}
    rows = {
        path.relative_to(home).as_posix(): reader(path)
        for pattern, reader in readers.items()
        for path in sorted(home.rglob(pattern))
        if "_curator" not in path.parts
    }
    counted = [(step.name, step.rows_in, step.rows_out, step.dropped) for step in receipt.steps]
    total = (receipt.rows_read, receipt.rows_written, receipt.rows_dropped, receipt.rows_quarantined)
    # Memory of earlier tests in this process may count as that of a full worker.
    return rows, [*counted, total, sorted(set(receipt.retries) - {"full worker"})]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder / "in")
    return folder


@pytest.fixture(scope="module")
def in_this_process(folder):
    """What each run writes and counts without workers."""
    with inline_cluster(memory="4GB", cpus=2), pytest.MonkeyPatch.context() as patched:
        patched.setattr(run, "SMALL_RANGE_BYTES", 40_000)
        return {write.__name__: written_by(write, folder / "inline" / write.__name__) for write in RUNS}


@pytest.fixture(scope="module")
def workers(in_this_process):
    with cdf.start_cluster(memory="4GB", cpus=2) as running:
        yield running


@pytest.mark.parametrize("write", RUNS, ids=lambda write: write.__name__)
def test_a_run_in_workers_is_the_run_in_this_process(write, folder, workers, in_this_process, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 40_000)
    expected, counted = in_this_process[write.__name__]
    rows, found = written_by(write, folder / "workers" / write.__name__)
    assert found == counted
    assert sum(map(len, expected.values())) > 0
    assert rows.keys() == expected.keys()
    for name, table in rows.items():
        pd.testing.assert_frame_equal(table, expected[name], obj=name)
