# SPDX-License-Identifier: Apache-2.0
"""Check the docstrings of public functions, classes and methods with numpydoc: ``python docs/check_docstrings.py``.

A function has an example, a See Also, and all its parameters and returns. A class has a See Also; its fields are documented by
strings of their own. A method names no parameter that it does not have.
"""

import inspect
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType

from numpydoc.validate import validate

import curator_df as cdf

OF_FUNCTIONS = {"EX01", "PR01", "PR02", "PR07", "RT01", "RT03", "SA01"}
OF_CLASSES = {"PR02", "SA01"}
OF_METHODS = {"PR02"}
"""Checks of numpydoc: examples (EX), parameters (PR), returns (RT) and See Also (SA)."""


def public() -> Iterator[tuple[str, set[str]]]:
    """Yield the name of each public function, class and method, with its checks."""
    for name in cdf.__all__:
        made = getattr(cdf, name)
        if isinstance(made, ModuleType):
            continue
        if not inspect.isclass(made):
            yield f"curator_df.{name}", OF_FUNCTIONS
            continue
        yield f"curator_df.{name}", OF_CLASSES
        for method, value in vars(made).items():
            is_called = isinstance(value, FunctionType | classmethod | staticmethod)
            if is_called and not method.startswith("_") and value.__doc__:
                yield f"curator_df.{name}.{method}", OF_METHODS


def main() -> int:
    """Write each fault; return how many there are."""
    faults = 0
    for name, checks in public():
        for code, text in validate(name)["errors"]:
            if code in checks:
                faults += 1
                sys.stdout.write(f"{name}: {code} {text}\n")
    sys.stdout.write(f"{faults} faults\n")
    return faults


if __name__ == "__main__":
    sys.exit(main() > 0)
