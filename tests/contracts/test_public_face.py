# SPDX-License-Identifier: Apache-2.0
"""What users see: every public name is listed, documented and typed, and every operator is called the same way."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf

LAZY_VERBS = (
    "read_",
    "add_",
    "normalize_",
    "keep_",
    "drop_",
    "sample_",
    "redact_",
    "remove_",
    "split_documents",
    "join_",
)
"""Verbs whose functions are lazy and state what they do to rows and memory."""
OTHER_VERBS = ("find_", "describe_", "write_")
VERBLESS = {
    "best",
    "blend",
    "checkpoint",
    "compare_receipts",
    "connect",
    "explain",
    "explore_thresholds",
    "job_cluster",
    "monitor_memory",
    "presidio",
    "profile_memory",
    "recommend",
    "resources",
    "serve_metrics",
    "shuffle_rows",
    "slurm_cluster",
    "split_by",
    "start_cluster",
    "to_backend",
}
"""Functions that are what their name says; add one only with the design."""
POSITIONAL_SECOND = {
    ("best", "which"),
    ("blend", "path"),
    ("checkpoint", "path"),
    ("add_class", "classifier"),
    ("add_metrics", "metrics"),
    ("compare_receipts", "second"),
    ("add_profile", "profile"),
    ("describe_drops", "profile"),
    ("explore_thresholds", "profile"),
    ("keep_class", "classifier"),
    ("keep_profile", "profile"),
    ("keep_where", "predicate"),
    ("profile_memory", "sample"),
    ("shuffle_rows", "path"),
    ("split_by", "path"),
    ("to_backend", "backend"),
    ("write_jsonl", "path"),
    ("write_parquet", "path"),
}
"""Arguments without which the call would say nothing."""
CONTRACT_LINE = re.compile(r"Rows: .+?\. Peak extra memory: .+?\. Computes: no\b")

PUBLIC = {name: getattr(cdf, name) for name in cdf.__all__}
FUNCTIONS = [value for value in PUBLIC.values() if inspect.isfunction(value)]
CLASSES = [value for value in PUBLIC.values() if inspect.isclass(value)]
LAZY = [function for function in FUNCTIONS if function.__name__.startswith(LAZY_VERBS)]
TAKE_TABLE = [function for function in FUNCTIONS if next(iter(inspect.signature(function).parameters), "") == "df"]


def name_of(value: Any) -> str:
    return str(value.__name__)


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def sections_of(documented: Any) -> dict[str, str]:
    """Return the text of each numpydoc section, and the summary under the empty name."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}$", inspect.getdoc(documented) or "", flags=re.MULTILINE)
    return {"": parts[0].strip(), **dict(zip(parts[1::2], parts[2::2], strict=True))}


def described_parameters(text: str) -> set[str]:
    entries = re.findall(r"^(\S[^:\n]*?)(?: :.*)?$", text, flags=re.MULTILINE)
    return {name.strip().lstrip("*") for entry in entries for name in entry.split(",")}


def test_all_is_sorted_and_has_no_duplicates() -> None:
    assert list(cdf.__all__) == sorted(set(cdf.__all__))


def test_nothing_public_is_left_out() -> None:
    loaded = {
        name for name, value in vars(cdf).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert loaded <= set(cdf.__all__)


def test_the_lists_here_see_every_kind_of_name() -> None:
    modules = [value for value in PUBLIC.values() if isinstance(value, ModuleType)]
    assert len(FUNCTIONS) + len(CLASSES) + len(modules) == len(PUBLIC)
    assert LAZY
    assert TAKE_TABLE


@pytest.mark.parametrize("name", cdf.__all__)
def test_has_a_docstring_with_a_one_line_summary(name: str) -> None:
    summary = sections_of(PUBLIC[name])[""].split("\n\n")[0]
    assert summary.endswith(".")
    assert "\n" not in summary


@pytest.mark.parametrize("function", FUNCTIONS, ids=name_of)
def test_begins_with_a_verb_of_the_design(function: Callable[..., Any]) -> None:
    assert function.__name__.startswith(LAZY_VERBS + OTHER_VERBS) or function.__name__ in VERBLESS


@pytest.mark.parametrize("function", FUNCTIONS, ids=name_of)
def test_every_parameter_is_described(function: Callable[..., Any]) -> None:
    described = described_parameters(sections_of(function).get("Parameters", ""))
    assert described == {parameter.name for parameter in parameters_of(function)}


@pytest.mark.parametrize("function", FUNCTIONS, ids=name_of)
def test_returns_and_notes_are_there(function: Callable[..., Any]) -> None:
    assert {"Returns", "Notes"} <= set(sections_of(function))


@pytest.mark.parametrize("function", LAZY, ids=name_of)
def test_lazy_functions_state_their_contract(function: Callable[..., Any]) -> None:
    assert CONTRACT_LINE.search(" ".join(sections_of(function)["Notes"].split()))


@pytest.mark.parametrize("function", FUNCTIONS, ids=name_of)
def test_is_fully_annotated(function: Callable[..., Any]) -> None:
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    assert not [parameter.name for parameter in parameters_of(function) if parameter.annotation is parameter.empty]


@pytest.mark.parametrize("function", FUNCTIONS, ids=name_of)
def test_only_the_first_parameter_is_positional(function: Callable[..., Any]) -> None:
    _, *others = parameters_of(function) or [None]
    by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    positional = {(function.__name__, other.name) for other in others if other and other.kind not in by_name}
    assert positional <= POSITIONAL_SECOND


@pytest.mark.parametrize(
    "function", [function for function in LAZY if not function.__name__.startswith("read_")], ids=name_of
)
def test_operators_take_the_table_first(function: Callable[..., Any]) -> None:
    assert function in TAKE_TABLE


def test_the_accessor_has_exactly_the_functions_of_a_table() -> None:
    table = dd.from_pandas(pd.DataFrame({"text": ["a"]}), npartitions=1)
    methods = {name for name in dir(table.curate) if not name.startswith("_")}
    assert methods == {function.__name__ for function in TAKE_TABLE}


@pytest.mark.parametrize("function", TAKE_TABLE, ids=name_of)
def test_accessor_methods_complete_and_document_like_the_function(function: Callable[..., Any]) -> None:
    method = getattr(dd.from_pandas(pd.DataFrame({"text": ["a"]}), npartitions=1).curate, function.__name__)
    assert inspect.getdoc(method) == inspect.getdoc(function)
    assert parameters_of(method) == parameters_of(function)[1:]
