# SPDX-License-Identifier: Apache-2.0
"""Tables and arguments of the wrong type are errors of ours at the door of every public operator, and say what was given."""

import inspect

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df.errors import CuratorError, ExpressionError
from tests.contracts.operator_cases import CASES, OPERATORS, OURS, table

NO_TABLES = {
    "pandas": pd.DataFrame({"text": ["a"]}),
    "None": None,
    "str": "docs.jsonl",
    "series": dd.from_pandas(pd.DataFrame({"text": ["a"]}), npartitions=1)["text"],
}
TAKES_A_TABLE = [
    *((case.operator, case.arguments) for case in {case.operator: case for case in reversed(CASES)}.values()),
    *((name, {}) for name in ("describe_drops", "explain", "find_exact_duplicates", "find_near_duplicates")),
    ("find_semantic_duplicates", {"embedding": "vector"}),
    *((name, {"path": "out"}) for name in ("checkpoint", "shuffle_rows", "write_jsonl", "write_parquet")),
    ("blend", {"path": "out", "epochs": {"a": 1}}),
    ("split_by", {"path": "out", "column": "text"}),
    ("to_backend", {"backend": "pandas"}),
    ("explore_thresholds", {}),
]
ODD_VALUES = ("many", "0.5", None, [1, 2], ["text", "title"], {"a": 1}, True, -1, float("nan"))
NOT_CALLED_WITH = {("add_completion", "cache")}
"""Parameters for which an odd value has an effect outside of this process."""


EITHER = ("explore_thresholds", "pandas")
"""It takes a pandas DataFrame too."""


@pytest.mark.parametrize(
    ("operator", "arguments", "given"),
    [(name, arguments, given) for name, arguments in TAKES_A_TABLE for given in NO_TABLES if (name, given) != EITHER],
)
def test_what_is_not_a_dask_table_is_refused(operator, arguments, given):
    arguments = {"profile": OURS, **arguments} if operator == "describe_drops" else arguments
    with pytest.raises(ExpressionError, match=r"expected a Dask DataFrame.*got "):
        getattr(cdf, operator)(NO_TABLES[given], **arguments)


@pytest.mark.parametrize("operator", OPERATORS)
def test_arguments_of_the_wrong_type_are_errors_of_ours(operator):
    case = next(case for case in CASES if case.operator == operator)
    _, *parameters = inspect.signature(getattr(cdf, operator)).parameters
    raw = []
    for parameter in parameters:
        for value in ODD_VALUES if (operator, parameter) not in NOT_CALLED_WITH else ():
            try:
                case(table(), **{parameter: value})
            except CuratorError:
                pass
            except Exception as exc:  # noqa: BLE001 - all of them are told
                raw.append(f"{parameter}={value!r}: {type(exc).__name__}: {exc}")
    assert not raw, "\n".join(raw)
