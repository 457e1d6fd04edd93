# SPDX-License-Identifier: Apache-2.0
"""What a run compares when it resumes: an operator's fingerprint is the same in every process and says every parameter."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

from tests.contracts.operator_cases import CASES, fingerprints_of, kernels_of, table
from tests.contracts.operator_values import ONLY_WITH, OTHER_VALUES

CHECKOUT = Path(__file__).resolve().parents[2]
PRINT_ALL = """
import json
from tests.contracts.operator_cases import CASES, fingerprints_of, table
print(json.dumps({str(case): fingerprints_of(case(table())) for case in CASES}))
"""


def test_fingerprints_are_equal_in_every_process():
    command = [sys.executable, "-c", PRINT_ALL]
    environments = [{**os.environ, "PYTHONHASHSEED": seed} for seed in ("1", "2")]
    processes = [subprocess.Popen(command, cwd=CHECKOUT, env=each, stdout=subprocess.PIPE) for each in environments]
    printed = [json.loads(process.communicate(timeout=120)[0]) for process in processes]
    here = {str(case): fingerprints_of(case(table())) for case in CASES}
    assert printed == [here, here]


def test_no_two_cases_are_the_same_program():
    fingerprints = [tuple(fingerprints_of(case(table()))) for case in CASES]
    assert len(set(fingerprints)) == len(CASES)


def test_every_parameter_is_part_of_the_fingerprint():
    missing = []
    for operator, values in OTHER_VALUES.items():
        case = next(case for case in CASES if case.operator == operator)
        for parameter, value in values.items():
            context = ONLY_WITH.get((operator, parameter), {})
            changed = case(table(), **context, **{parameter: value})
            if fingerprints_of(changed) == fingerprints_of(case(table(), **context)):
                missing.append((operator, parameter))
    assert OTHER_VALUES
    assert missing == []


def test_kernels_reach_a_worker_as_they_are():
    for case in CASES:
        for kernel in kernels_of(case(table())):
            assert pickle.loads(pickle.dumps(kernel)) == kernel, case
