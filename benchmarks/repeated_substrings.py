# SPDX-License-Identifier: Apache-2.0
"""Time, memory and disk space of `remove_repeated_substrings`, and its result against a sort of the hashes of all windows.

    python benchmarks/repeated_substrings.py FOLDER [--memory 1GB] [--keep first] [--min-bytes 100] [--check]

FOLDER has JSON Lines with ``text``, such as ``make_corpus.py`` writes. The run is a process of its own, watched from outside; the
files of its stages are measured every half second. ``--check`` hashes the window at each byte of the input in this process, which
takes 40 bytes of memory for each byte of text, and compares the texts that stay row by row. The exit code is 1 if they differ, or
if the run held more than it was allowed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import orjson
import pyarrow.parquet as pq
from sampled_process import run_sampled

RUN = """
import json, sys, curator_df as cdf
if __name__ == "__main__":
    source, target, memory, keep, min_bytes = sys.argv[1:]
    docs = cdf.read_jsonl(source)[["text"]]
    docs = cdf.remove_repeated_substrings(docs, min_bytes=int(min_bytes), keep=keep)
    with cdf.start_cluster(memory=memory, cpus=2):
        receipt = cdf.write_parquet(docs, target)
    print(json.dumps(receipt.to_json()))
"""
OPERATOR = "remove_repeated_substrings"


def most_on_disk(folder: Path, ended: threading.Event) -> list[int]:
    """Return the most bytes in the files of stages, as a list that grows until the run has ended."""
    seen = [0]

    def watch() -> None:
        while not ended.wait(0.5):
            sizes = 0
            for path in folder.glob("out/_curator/stages/**/*"):
                try:
                    sizes += path.stat().st_size
                except FileNotFoundError:
                    continue  # deleted meanwhile
            seen.append(sizes)

    threading.Thread(target=watch, daemon=True).start()
    return seen


def window_hashes(joined: np.ndarray, window_bytes: int) -> np.ndarray:
    """Return a hash of the bytes from each position on, by doubling."""
    with np.errstate(over="ignore"):
        hashes, width, length, found = joined.astype(np.uint64) + np.uint64(1), 1, 0, None
        while True:
            if window_bytes & width:
                if found is None:
                    found = hashes.copy()
                else:
                    found[: len(found) - length] += hashes[length:] * np.uint64(
                        pow(0x9E3779B97F4A7C15, length, 1 << 64)
                    )
                length += width
            width *= 2
            if width > window_bytes:
                return found
            factor = np.uint64(pow(0x9E3779B97F4A7C15, width // 2, 1 << 64))
            hashes[: len(hashes) - width // 2] += hashes[width // 2 :] * factor


def expected_texts(texts: list[bytes], window_bytes: int, keep: str) -> list[bytes]:
    """Return the texts without the bytes that repeated windows cover, by sorting the hashes of all windows."""
    joined = np.frombuffer(b"".join(texts), dtype=np.uint8)
    ends = np.cumsum([len(text) for text in texts])
    is_window = np.zeros(len(joined), dtype=np.bool_)
    for begin, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
        is_window[begin : max(end - window_bytes + 1, begin)] = True
    places = np.flatnonzero(is_window)
    hashes = window_hashes(joined, window_bytes)[places]
    order = np.argsort(hashes, kind="stable")  # equal windows in input order
    same = hashes[order][1:] == hashes[order][:-1]
    goes = np.zeros(len(order), dtype=np.bool_)
    goes[1:] = same
    if keep == "none":
        goes[:-1] |= same
    steps = np.zeros(len(joined) + window_bytes + 1, dtype=np.int32)
    np.add.at(steps, places[order[goes]], 1)
    steps[window_bytes:] -= steps[:-window_bytes].copy()
    covered = np.cumsum(steps)[: len(joined)] > 0
    begins = (joined & 0xC0) != 0x80
    number = np.cumsum(begins) - 1  # of the code point of each byte
    kept = np.zeros(int(begins.sum()), dtype=np.bool_)
    kept[number[~covered]] = True
    stays = kept[number]
    return [
        joined[begin:end][stays[begin:end]].tobytes()
        for begin, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)
    ]


def check(source: Path, target: Path, window_bytes: int, keep: str) -> int:
    """Return the number of rows that differ from what is expected."""
    texts = [orjson.loads(line)["text"].encode() for path in sorted(source.glob("*.jsonl")) for line in path.open("rb")]
    expected = expected_texts(texts, window_bytes, keep)
    left = [
        text for text, before in zip(expected, texts, strict=True) if text == before or text.strip(b" \t\n\r\x0b\x0c")
    ]
    files = sorted(target.glob("*.parquet"))
    found = [text.encode() for file in files for text in pq.read_table(file, columns=["text"])["text"].to_pylist()]
    different = sum(one != other for one, other in zip(left, found, strict=False)) + abs(len(left) - len(found))
    print(f"check | {len(found):,} rows, {len(left):,} expected | {different:,} differ")
    return different


def main() -> int:
    """Print figures of the run, and of the check."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("source", type=Path)
    options.add_argument("--memory", default="1GB")
    options.add_argument("--keep", default="first", choices=("first", "none"))
    options.add_argument("--min-bytes", default="100")
    options.add_argument("--check", action="store_true")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(dir=given.source.parent) as made:
        script, ended = Path(made) / "run.py", threading.Event()
        script.write_text(RUN)
        seen, started = most_on_disk(Path(made), ended), time.monotonic()
        arguments = [str(given.source), f"{made}/out", given.memory, given.keep, given.min_bytes]
        done = run_sampled([sys.executable, str(script), *arguments])
        ended.set()
        if done.returncode:
            print(f"failed after {time.monotonic() - started:.0f} s: {done.err.strip().splitlines()[-3:]}")
            return 1
        run = json.loads(done.out.splitlines()[-1])
        text_bytes = sum(path.stat().st_size for path in given.source.glob("*.jsonl"))
        [counters] = [step["counters"] for step in run["steps"] if step["name"] == OPERATOR]
        print(f"input | {text_bytes / 1e6:,.0f} MB | {run['rows_read']:,} rows, {run['rows_written']:,} written")
        print(f"removed | {counters}")
        print(f"time | {done.seconds:.1f} s | {done.cpu_seconds:.1f} CPU s, with the start of Python and the cluster")
        print(f"memory | {done.peak_bytes / 1e6:.0f} MB | of {run['allowed_bytes'] / 1e6:.0f} MB")
        print(f"disk | {max(seen) / 1e6:.0f} MB | {max(seen) / text_bytes:.2f} of the input")
        for level, exchange in zip(("anchors", "stretches", "pieces", "windows"), run["exchanges"], strict=True):
            print(f"{level} | {exchange['keys']:,} keys, {exchange['unique']:,} distinct | {exchange['seconds']:.1f} s")
        failed = done.peak_bytes > run["allowed_bytes"]
        if given.check:
            failed |= check(given.source, Path(made) / "out", int(given.min_bytes), given.keep) > 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
