# SPDX-License-Identifier: Apache-2.0
"""A disk that fails to read in the middle of a file, and a clock that jumps while a run goes on."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.runs import EXPECTED, PATIENCE_SECONDS, ROWS, finish, ids, wait_for_ranges

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3 * PATIENCE_SECONDS)]


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    if shutil.which("cc") is None:
        pytest.skip("by nature: these faults are put in by a library in C, and there is no compiler")
    library = tmp_path_factory.mktemp("faulty") / "faulty.so"
    source = Path(__file__).with_name("faulty.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return str(library)


def test_a_read_error_in_the_middle_of_a_file_is_told_and_the_run_resumes(start, script, corpus, tmp_path, faulty):
    bad, sick = corpus / "a.jsonl", tmp_path / "disk-is-sick"
    sick.touch()
    shim = {
        "LD_PRELOAD": faulty,
        "FAULTY_READ_FILE": str(bad),
        "FAULTY_READ_OFFSET": str(bad.stat().st_size - 150_000),  # behind what is looked at to know the columns
        "FAULTY_READ_UNTIL": str(sick),
    }
    process = start(script, corpus, tmp_path / "out", SLEEP="0", **shim)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode != 0
    assert f"cannot continue to read '{bad}'" in err
    assert os.strerror(5) in err
    sick.unlink()
    receipt = finish(start(script, corpus, tmp_path / "out", on_existing="resume", SLEEP="0", **shim))
    assert receipt["ranges_resumed"] > 0
    assert receipt["rows_read"] == ROWS
    assert ids(tmp_path / "out") == EXPECTED


@pytest.mark.parametrize("seconds", [86_400, -86_400])
def test_a_clock_that_jumps_by_a_day_changes_nothing(start, script, corpus, tmp_path, faulty, seconds):
    jumped = tmp_path / "clock-has-jumped"
    shim = {"LD_PRELOAD": faulty, "FAULTY_CLOCK_SECONDS": str(seconds), "FAULTY_CLOCK_WHEN": str(jumped)}
    process = start(script, corpus, tmp_path / "out", **shim)
    wait_for_ranges(tmp_path / "out", 3, process)
    jumped.touch()
    receipt = finish(process)
    assert ids(tmp_path / "out") == EXPECTED
    assert 0 < receipt["seconds"] < 3_600
    assert not receipt["retries"]


def test_a_clock_that_is_set_back_again_and_again_holds_up_nothing(start, script, corpus, tmp_path, faulty):
    jumped = tmp_path / "clock-has-jumped"
    shim = {"LD_PRELOAD": faulty, "FAULTY_CLOCK_SECONDS": "-86400", "FAULTY_CLOCK_WHEN": str(jumped)}
    process = start(script, corpus, tmp_path / "out", SLEEP="0.2", **shim)
    wait_for_ranges(tmp_path / "out", 1, process)
    times, deadline = 0, time.monotonic() + PATIENCE_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        jumped.touch()
        time.sleep(0.3)
        jumped.unlink()
        time.sleep(0.1)
        times += 1
    assert times > 3
    receipt = finish(process)
    assert ids(tmp_path / "out") == EXPECTED
    assert not receipt["retries"]


def test_the_shim_puts_its_faults_in(tmp_path, faulty):
    some = tmp_path / "some"
    some.write_bytes(bytes(range(100)))
    program = "import sys, time; print(time.time()); f = open(sys.argv[1], 'rb', 0); print(len(f.read(60))); f.read(1)"
    told = subprocess.run(
        [sys.executable, "-c", program, str(some)],
        env={
            **os.environ,
            "LD_PRELOAD": faulty,
            "FAULTY_CLOCK_SECONDS": "-86400000",
            "FAULTY_CLOCK_WHEN": str(some),
            "FAULTY_READ_FILE": str(some),
            "FAULTY_READ_OFFSET": "50",
            "FAULTY_READ_UNTIL": str(some),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    now, read = told.stdout.split()
    assert int(read) == 50
    assert float(now) < some.stat().st_mtime - 86_000_000
    assert os.strerror(5) in told.stderr
