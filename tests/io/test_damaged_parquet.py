# SPDX-License-Identifier: Apache-2.0
"""Damaged Parquet files: no crash, no hang, no rows lost silently, and only errors of curator_df."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks/damaged_parquet.py"


def read_damaged(*arguments):
    done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_some_damaged_files_are_read_or_refused():
    said = read_damaged("--files", "45", "--seed", "5")
    assert "CorruptFileError" in said and "read/read/read" in said


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("arguments", [("--files", "10000", "--seed", "2"), ("--runs", "--files", "50", "--seed", "3")])
def test_thousands_of_damaged_files_are_read_or_refused(arguments):
    read_damaged(*arguments)
