# SPDX-License-Identifier: Apache-2.0
"""Damaged files of JSON Lines and CSV, also compressed: read, or refused by errors of curator_df, and no rows lost silently."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def read_damaged(script, *arguments):
    done = subprocess.run(
        [sys.executable, BENCHMARKS / script, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("script", "kinds"),
    [
        ("damaged_jsonl.py", ["jsonl", "jsonl.gz", "jsonl.zst", "jsonl.bz2", "jsonl.xz"]),
        ("damaged_csv.py", ["csv", "tsv", "csv.gz", "tsv.zst", "csv.bz2", "tsv.xz"]),
    ],
)
def test_some_damaged_files_are_read_or_refused(script, kinds):
    lines = read_damaged(script, "--files", "12", "--seed", "6").splitlines()
    assert [line.split()[0] for line in lines] == kinds
    assert all("read" in line for line in lines if "." not in line.split()[0])
    assert all("CorruptFileError" in line for line in lines if "." in line.split()[0])


@pytest.mark.proof
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("script", ["damaged_jsonl.py", "damaged_csv.py"])
def test_thousands_of_damaged_files_are_read_or_refused(script):
    read_damaged(script, "--files", "10000", "--seed", "3")
