# SPDX-License-Identifier: Apache-2.0
import inspect

import cloudpickle
import distributed  # noqa: F401 - it changes how exceptions are pickled
import pytest

from curator_df import errors

CLASSES = [
    value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, errors.CuratorError)
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_errors_travel_from_workers_with_what_they_carry(kind):
    error = kind("what happened")
    error.path = "a.jsonl"
    again = cloudpickle.loads(cloudpickle.dumps(error))
    assert type(again) is kind
    assert str(again) == "what happened"
    assert again.path == "a.jsonl"


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_the_drawing_of_the_tree_lists_every_error_with_its_built_in(kind):
    line = next(line for line in errors.__doc__.splitlines() if f" {kind.__name__}" in line)
    built_ins = [base.__name__ for base in kind.__bases__ if base is not errors.CuratorError and base is not Exception]
    assert all(f"({name})" in line for name in built_ins)
