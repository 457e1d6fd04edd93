# SPDX-License-Identifier: Apache-2.0
import functools
import subprocess
import sys

import pytest

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
