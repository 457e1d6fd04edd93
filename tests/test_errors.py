# SPDX-License-Identifier: Apache-2.0
import inspect
import re

import cloudpickle
import distributed  # noqa: F401 - it changes how exceptions are pickled

from curator_df import errors

CLASSES = [
    value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, errors.CuratorError)
]


def test_errors_travel_from_workers_with_what_they_carry():
    for kind in CLASSES:
        error = kind("what happened")
        error.path = "a.jsonl"
        again = cloudpickle.loads(cloudpickle.dumps(error))
        assert (type(again), str(again), again.path) == (kind, "what happened", "a.jsonl")


def test_the_drawing_of_the_tree_lists_every_error_with_its_built_in():
    lines = errors.__doc__.splitlines()
    drawn = {kind: [line for line in lines if re.search(rf" {kind.__name__}\b", line)] for kind in CLASSES}
    assert [kind.__name__ for kind, found in drawn.items() if not found] == []
    missing = [
        (kind.__name__, base.__name__)
        for kind, found in drawn.items()
        for base in kind.__bases__
        if base not in (errors.CuratorError, Exception) and f"({base.__name__})" not in found[0]
    ]
    assert missing == []
