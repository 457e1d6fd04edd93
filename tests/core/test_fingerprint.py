# SPDX-License-Identifier: Apache-2.0
import functools
import importlib
import os
import pkgutil
import subprocess
import sys
import threading
import types

import pytest

import curator_df
from curator_df.core.fingerprint import fingerprint
from curator_df.profiles import DATATROVE_GOPHER_QUALITY


def make(threshold):
    return lambda block: block.n > threshold


def test_the_same_code_typed_elsewhere_is_the_same_function():
    first, again, other = {}, {}, {}
    for space, name, code in ((first, "cell 1", "1"), (again, "cell 7", "1"), (other, "cell 7", "2")):
        exec(compile(f"\n\ndef f(x):\n    return x + {code}", name, "exec"), {"__name__": "__main__"}, space)
    assert fingerprint(first["f"]) == fingerprint(again["f"])
    assert fingerprint(first["f"]) != fingerprint(other["f"])


def test_what_a_function_closes_over_counts():
    assert fingerprint(make(3)) == fingerprint(make(3))
    assert fingerprint(make(3)) != fingerprint(make(4))
    assert fingerprint(functools.partial(make, 3)) != fingerprint(functools.partial(make, 4))


@pytest.mark.parametrize(
    ("one", "other"), [(1, 1.0), ("1", 1), (("a", "b"), ("ab",)), ([1, [2]], [1, 2]), (True, 1), (b"a", "a")]
)
def test_values_that_look_alike_differ(one, other):
    assert fingerprint(one) != fingerprint(other)


def test_profiles_differ_by_threshold():
    stricter = DATATROVE_GOPHER_QUALITY.replace(gopher_short_doc=60)
    assert fingerprint(DATATROVE_GOPHER_QUALITY) != fingerprint(stricter)


def test_another_process_finds_the_same():
    code = (
        "from curator_df.core.fingerprint import fingerprint; from curator_df.profiles import DATATROVE_GOPHER_QUALITY as p;"
        "print(fingerprint(p, {'b': {3, 1, 'x'}, 'a': lambda t: t.strip()}))"
    )
    found = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert len(found) == 1
    assert len(found.pop().strip()) == 32


def typed(code, **names):
    """Return what a cell of a notebook with this code defines, and what cells before it have."""
    space = {"__name__": "__main__", **names}
    exec(code, space)
    return space


USES_LIMIT = "f = lambda block: block[block.n > limit]"
USES_HELPER = "def f(block):\n    return [helper(n) for n in block]"
USES_BOTH = "def helper(n):\n    return n > limit\n" + USES_HELPER


def test_globals_of_a_notebook_that_a_function_uses_count():
    assert fingerprint(typed(USES_LIMIT, limit=5)["f"]) == fingerprint(typed(USES_LIMIT, limit=5, other=1)["f"])
    assert fingerprint(typed(USES_LIMIT, limit=5)["f"]) != fingerprint(typed(USES_LIMIT, limit=10)["f"])
    assert fingerprint(typed(USES_BOTH, limit=5)["f"]) != fingerprint(typed(USES_BOTH, limit=10)["f"])
    one, other = (typed(f"def helper(n):\n    return n > {limit}\n{USES_HELPER}")["f"] for limit in (5, 10))
    assert fingerprint(one) != fingerprint(other)


def test_classes_of_a_notebook_count_with_their_methods_and_objects_with_their_values():
    def found(least, value):
        methods = (
            f"    def __init__(self, n):\n        self.n = n\n    def holds(self, n):\n        return n > {least}\n"
        )
        code = f"class Keep:\n{methods}"
        return fingerprint(typed(f"{code}keep = Keep({value})\n{USES_LIMIT.replace('limit', 'keep.n')}")["f"])

    assert found(1, 2) == found(1, 2)
    assert len({found(1, 2), found(3, 2), found(1, 3)}) == 3


def test_state_that_a_function_keeps_in_a_global_does_not_count():
    code = "def f(block):\n    global calls\n    calls += 1\n    return block"
    assert fingerprint(typed(code, calls=0)["f"]) == fingerprint(typed(code, calls=3)["f"])


def test_a_global_that_cannot_be_pickled_counts_by_its_type():
    code = "def f(block):\n    with lock:\n        return block"
    one, other = (typed(code, lock=threading.Lock())["f"] for _ in range(2))
    assert fingerprint(one) == fingerprint(other) != fingerprint(typed(code, lock=threading.RLock())["f"])


def test_what_refers_to_itself_has_a_fingerprint():
    def countdown(n):
        return n and countdown(n - 1)

    def early():
        return fingerprint(lambda: later)

    before = early()
    later = 3
    endless = []
    endless.append(endless)
    mutual = typed("def even(n):\n    return n == 0 or odd(n - 1)\ndef odd(n):\n    return n > 0 and even(n - 1)")
    assert fingerprint(countdown) == fingerprint(countdown)
    assert before != early()
    assert fingerprint(endless) != fingerprint([[]])
    assert fingerprint(mutual["even"]) != fingerprint(mutual["odd"])
    assert later == 3


def test_a_notebook_finds_the_same_in_every_process():
    code = """
import re
import numpy as np, pandas as pd
from curator_df.core.fingerprint import fingerprint
WORDS, LIMITS, TABLE = {"a", "b", "c"}, {"x": 1, "y": {2, 3}}, pd.DataFrame({"n": [1]})
PATTERN = re.compile("a+")
class Keep:
    LEAST = 3
    def __call__(self, n):
        return n > self.LEAST or helper(n)
keep = Keep()
def helper(n):
    return keep(n) or n in WORDS or np.isin(n, LIMITS) or PATTERN.match(n) or TABLE or pd.isna(n)
print(fingerprint(helper, keep, lambda n: helper(n)))
"""
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


def functions_of_the_package():
    for found in pkgutil.walk_packages(curator_df.__path__, "curator_df."):
        if "kernels.device" not in found.name:  # they import RAPIDS
            module = importlib.import_module(found.name)
            for name, value in vars(module).items():
                if isinstance(value, types.FunctionType) and value.__module__ == found.name and name[0] != "_":
                    yield value


def test_no_two_functions_of_the_package_have_the_same_fingerprint():
    functions = list(functions_of_the_package())
    assert len({fingerprint(function) for function in functions}) == len(functions) > 500


def test_a_function_of_the_package_is_the_same_when_its_module_moves():
    def moved(function, home):
        other = types.FunctionType(function.__code__, function.__globals__, function.__name__)
        other.__qualname__, other.__module__, other.__kwdefaults__ = (
            function.__qualname__,
            home,
            function.__kwdefaults__,
        )
        return other

    function = curator_df.core.fingerprint.fingerprint
    assert fingerprint(function) == fingerprint(moved(function, "curator_df.io.elsewhere"))
    assert fingerprint(function) != fingerprint(moved(function, "another.package"))
