# SPDX-License-Identifier: Apache-2.0
"""What users see: every public name is listed, documented and typed, and every operator is called the same way."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, get_args, get_type_hints

import dask.dataframe as dd
import pandas as pd

import curator_df as cdf
from curator_df.core.calls import choices

LAZY_VERBS = (
    "read_",
    "add_",
    "normalize_",
    "keep_",
    "drop_",
    "sample_",
    "redact_",
    "remove_",
    "repeat_rows",
    "split_documents",
    "split_rows",
    "join",
)
"""Verbs whose functions are lazy and state what they do to rows and memory."""
OTHER_VERBS = ("find_", "describe_", "write_")
VERBLESS = {
    "audit_duplicates",
    "best",
    "blend",
    "checkpoint",
    "compare_receipts",
    "concat",
    "connect",
    "describe",
    "explain",
    "explore_thresholds",
    "forget",
    "job_cluster",
    "load_recipe",
    "model",
    "monitor_memory",
    "open_index",
    "presidio",
    "preview",
    "profile_memory",
    "push_to_hub",
    "recommend",
    "resources",
    "serve_metrics",
    "shuffle_rows",
    "slurm_cluster",
    "start_cluster",
    "to_backend",
}
"""Functions that are what their name says; add one only with the design."""
ALSO_POSITIONAL = {
    ("audit_duplicates", "docs"),
    ("best", "which"),
    ("blend", "path"),
    ("compare_receipts", "second"),
    ("explain", "run"),
    ("explore_thresholds", "profile"),
    ("profile_memory", "sample"),
    ("push_to_hub", "repo"),
}
"""Arguments that may be given by position although they are not the first required one; add one only with the design."""
CONTRACT_LINE = re.compile(r"Rows: .+?\. Peak extra memory: .+?\. Computes: no\b")

PUBLIC = {name: getattr(cdf, name) for name in cdf.__all__}
FUNCTIONS = [value for value in PUBLIC.values() if inspect.isfunction(value)]
CLASSES = [value for value in PUBLIC.values() if inspect.isclass(value)]
LAZY = [function for function in FUNCTIONS if function.__name__.startswith(LAZY_VERBS)]
TAKE_TABLE = [function for function in FUNCTIONS if next(iter(inspect.signature(function).parameters), "") == "df"]
NAMES = [function.__name__ for function in FUNCTIONS]
METHODS = [
    getattr(each, "__func__", each)
    for kind in CLASSES
    for name, each in vars(kind).items()
    if name == "__init__" or not name.startswith("_")
]
OF_MODULES = [
    getattr(module, name)
    for module in PUBLIC.values()
    if inspect.ismodule(module)
    for name in getattr(module, "__all__", ())
]
CALLED = [*FUNCTIONS, *filter(inspect.isfunction, [*METHODS, *OF_MODULES])]
"""Public functions, also those of public modules, public methods and constructors."""


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


def test_each_name_has_a_docstring_with_a_one_line_summary() -> None:
    summaries = {name: sections_of(value)[""].split("\n\n")[0] for name, value in PUBLIC.items()}
    assert [name for name, summary in summaries.items() if not summary.endswith(".") or "\n" in summary] == []


def test_functions_begin_with_a_verb_of_the_design() -> None:
    assert [name for name in NAMES if not name.startswith(LAZY_VERBS + OTHER_VERBS) and name not in VERBLESS] == []


def test_every_parameter_is_described() -> None:
    for function in FUNCTIONS:
        described = described_parameters(sections_of(function).get("Parameters", ""))
        assert (name_of(function), described) == (name_of(function), {each.name for each in parameters_of(function)})


def test_returns_and_notes_are_there() -> None:
    assert [name_of(function) for function in FUNCTIONS if not {"Returns", "Notes"} <= set(sections_of(function))] == []


def test_lazy_functions_state_their_contract() -> None:
    notes = {name_of(function): " ".join(sections_of(function)["Notes"].split()) for function in LAZY}
    assert [name for name, text in notes.items() if not CONTRACT_LINE.search(text)] == []


def test_functions_are_fully_annotated() -> None:
    empty = inspect.Signature.empty
    bare = [(name_of(each), "return") for each in FUNCTIONS if inspect.signature(each).return_annotation is empty]
    bare += [
        (name_of(each), parameter.name)
        for each in FUNCTIONS
        for parameter in parameters_of(each)
        if parameter.annotation is parameter.empty
    ]
    assert bare == []


def test_tables_are_annotated_as_such() -> None:
    for function in FUNCTIONS:
        hints = get_type_hints(function)
        for name in {"df", "docs", "against", "sample", "groups"} & hints.keys():
            assert dd.DataFrame in (hints[name], *get_args(hints[name])), (name_of(function), name)
        if "tables" in hints:
            assert "dd.DataFrame" in str(inspect.signature(function).parameters["tables"].annotation), name_of(function)
    for function in TAKE_TABLE:
        hints = get_type_hints(function)
        returns = sections_of(function)["Returns"].strip()
        if returns.startswith("dask.dataframe.DataFrame"):
            assert hints["return"] is dd.DataFrame, name_of(function)


def test_closed_choices_are_in_the_signatures_and_in_the_docstrings() -> None:
    seen = 0
    for function in CALLED:
        hints = get_type_hints(function)
        described = sections_of(function).get("Parameters", "")
        for parameter in parameters_of(function):
            where = (function.__qualname__, parameter.name)
            allowed = list(choices(hints.get(parameter.name)))
            listed = re.search(rf"^{parameter.name} : (?:.*?)\{{(.*?)\}}", described, flags=re.MULTILINE | re.DOTALL)
            shown = "" if listed is None or "\n    " in listed[0] else listed[1]
            assert (where, bool(shown) and not allowed) == (where, False)
            if shown:
                assert (where, set(re.findall('"(.*?)"', shown))) == (where, set(allowed))
            if allowed:
                seen += 1
                assert all(repr(value) in str(parameter.annotation) for value in allowed), where
    assert seen > 75


def classes_in(annotation: Any) -> Iterator[type]:
    """Yield our own classes in an annotation."""
    for each in annotation if isinstance(annotation, list) else (annotation, *get_args(annotation)):
        if each is not annotation:
            yield from classes_in(each)
        elif isinstance(each, type) and each.__module__.startswith("curator_df."):
            yield each


def test_values_that_are_made_or_returned_are_public() -> None:
    used = {each for function in FUNCTIONS for hint in get_type_hints(function).values() for each in classes_in(hint)}
    assert len(used) > 20
    assert {each.__name__ for each in used - {*CLASSES}} == {"EntityFinder"}  # a protocol, which `Presidio` has
    assert {"Rule", "Cluster"} <= {each.__name__ for each in CLASSES}
    assert get_type_hints(cdf.write_parquet)["return"] is cdf.Receipt
    assert get_type_hints(cdf.explain)["return"] is cdf.Plan
    assert get_type_hints(cdf.start_cluster)["return"] is cdf.Cluster


def positional_of(function: Callable[..., Any]) -> list[str]:
    """Return what may be given by position, but for a table."""
    by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    names = [each.name for each in parameters_of(function) if each.kind not in by_name]
    return names[1:] if names[:1] in (["df"], ["tables"]) else names


def test_the_first_required_argument_is_positional_and_options_are_not() -> None:
    for function in FUNCTIONS:
        named = [each for each in parameters_of(function) if each.kind is not each.VAR_KEYWORD]
        needed = [each.name for each in named if each.default is each.empty][:2]
        of_table = needed[:1] in (["df"], ["tables"])
        expected = needed[1:2] if of_table else needed[:1]
        found = [name for name in positional_of(function) if (name_of(function), name) not in ALSO_POSITIONAL]
        if not of_table and not expected:  # nothing is required
            assert len(found) <= 1, name_of(function)
        elif name_of(function) != "slurm_cluster":  # the memory and CPUs of a job, which are equally important
            assert (name_of(function), found) == (name_of(function), expected)


def test_every_exception_of_the_positional_rule_is_one() -> None:
    positional = {(name_of(each), name) for each in FUNCTIONS for name in positional_of(each)}
    assert positional >= ALSO_POSITIONAL


def test_stopping_with_an_error_has_one_word() -> None:
    choices = {
        (name_of(function), name): get_args(kind)
        for function in FUNCTIONS
        for name, kind in get_type_hints(function).items()
        if name in ("on_bad_rows", "on_error", "on_existing", "on_oom")
    }
    assert len(choices) > 20
    assert [place for place, words in choices.items() if "raise" not in words] == []
    assert [place for place, words in choices.items() if {"error", "fail", "halve"} & {*words}] == []


def test_operators_take_the_table_first() -> None:
    operators = [function for function in LAZY if not function.__name__.startswith("read_")]
    assert [name_of(function) for function in operators if function not in TAKE_TABLE] == []


def test_the_accessor_has_exactly_the_functions_of_a_table() -> None:
    table = dd.from_pandas(pd.DataFrame({"text": ["a"]}), npartitions=1)
    methods = {name for name in dir(table.curate) if not name.startswith("_")}
    assert methods == {function.__name__ for function in TAKE_TABLE}


def test_accessor_methods_complete_and_document_like_the_function() -> None:
    accessor = dd.from_pandas(pd.DataFrame({"text": ["a"]}), npartitions=1).curate
    for function in TAKE_TABLE:
        method = getattr(accessor, function.__name__)
        assert inspect.getdoc(method) == inspect.getdoc(function)
        assert (name_of(function), parameters_of(method)) == (name_of(function), parameters_of(function)[1:])
