# SPDX-License-Identifier: Apache-2.0
"""Tables and arguments of the wrong type are errors of ours at the door of every public operator, and say what was given."""

import inspect
import re
from typing import get_type_hints

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df.core.calls import choices
from curator_df.errors import ColumnError, CuratorError, ExpressionError
from tests.contracts.operator_cases import CASES, OPERATORS, OURS, VECTORS, WITHOUT_EXTRA, table, with_vectors

NO_TABLES = {
    "pandas": pd.DataFrame({"text": ["a"]}),
    "None": None,
    "str": "docs.jsonl",
    "series": dd.from_pandas(pd.DataFrame({"text": ["a"]}), npartitions=1)["text"],
}
TAKES_A_TABLE = [
    *((case.operator, case.arguments) for case in {case.operator: case for case in reversed(CASES)}.values()),
    *((name, {}) for name in ("describe_drops", "explain", "preview", "find_exact_duplicates", "find_near_duplicates")),
    ("find_semantic_duplicates", {"embedding": "vector"}),
    *((name, {"path": "out"}) for name in ("checkpoint", "shuffle_rows", "write_jsonl", "write_parquet")),
    ("blend", {"path": "out", "epochs": {"a": 1}}),
    ("write_by", {"path": "out", "partition_on": "text"}),
    ("write_tokens", {"path": "out", "tokenizer": "tokenizer.json"}),
    ("to_backend", {"backend": "pandas"}),
    ("explore_thresholds", {}),
    ("describe", {}),
    ("describe_domains", {"url": "text"}),
]
ODD_VALUES = ("many", "0.5", None, [1, 2], ["text", "title"], {"a": 1}, True, -1, float("nan"))
NOT_CALLED_WITH = {("add_completion", "cache")}
"""Parameters for which an odd value has an effect outside of this process."""


EITHER = (("explore_thresholds", "pandas"), ("describe", "pandas"), ("describe_domains", "pandas"))
"""They take a pandas DataFrame too."""


def refusal(call, *given, **arguments):
    """Return the message of the error with which a call is refused, or an empty one if it is not."""
    try:
        call(*given, **arguments)
    except ExpressionError as error:
        return str(error)
    return ""


def test_what_is_not_a_dask_table_is_refused():
    calls = [
        (name, arguments, given)
        for name, arguments in TAKES_A_TABLE
        for given in NO_TABLES
        if (name, given) not in EITHER
    ]
    taken = []
    for operator, arguments, given in calls:
        arguments = {"profile": OURS, **arguments} if operator == "describe_drops" else arguments  # noqa: PLW2901
        said = refusal(getattr(cdf, operator), NO_TABLES[given], **arguments)
        if not re.search(r"expected a Dask DataFrame.*got ", said):
            taken.append((operator, given, said))
    assert len(calls) > 100
    assert taken == []


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


def wide(*names):
    return dd.from_pandas(pd.DataFrame([["a"] * len(names)], columns=list(names)), npartitions=1)


@pytest.fixture(scope="module")
def widest():
    return wide(*(f"text_{number:04d}" for number in range(3_000)))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda df: cdf.normalize_newlines(df, text="text_01"),
            r"the table has: 'text_2901', .* and 2,980 more\. Did you mean 'text_2901'\?$",
        ),
        (lambda df: cdf.add_ids(df, into="text_0001"), "choose another name with into=, or drop or rename that column"),
        (lambda df: cdf.add_ids(df, into=5), "add_ids: into= must be a str, not 5"),
        (lambda df: cdf.normalize_newlines(df, text=["a", "b"]), r"text=\['a', 'b'\] must be the name of one column"),
        (lambda df: cdf.sample_rows(df, fraction="10%"), "sample_rows: fraction='10%' must be a number, not str"),
        (lambda df: cdf.add_ids(df, dense=True, start="1"), "add_ids: start='1' must be a whole number, not str"),
        (
            lambda df: cdf.add_embedding(df, model=len, text="text_0001"),
            r"a function as model needs dimensions=\. Set it to the number of values",
        ),
        (lambda df: cdf.add_completion(df, prompt="{", base_url="http://a", model="m"), "Write {{ and }} for literal"),
    ],
)
def test_what_was_wrong_is_said(widest, call, said):
    with pytest.raises(CuratorError, match=said):
        call(widest)


def test_columns_of_one_name_are_refused():
    with pytest.raises(CuratorError, match="cannot distinguish the 2 columns named 'text'"):
        cdf.normalize_newlines(wide("text", "text"))


LEAST_LETTERS = 3
"""Letters of a choice of which a near miss is still recognized."""
OTHER_CALLS = {
    "best": lambda **given: cdf.best("score", **given),
    "describe_drops": lambda **given: cdf.describe_drops(table(), **{"profile": OURS, **given}),
    "job_cluster": lambda **given: cdf.job_cluster(**{"system": "slurm", "memory": "2GB", "cpus": 1, **given}),
    "model": lambda **given: cdf.model("some/model", **given),
    "start_cluster": lambda **given: cdf.start_cluster(memory="2GB", cpus=1, **given),
    "find_semantic_duplicates": lambda **given: cdf.find_semantic_duplicates(
        table().map_partitions(with_vectors), embedding=VECTORS[0], **given
    ),
    "concat": lambda **given: cdf.concat([table()], **given),
    "open_index": lambda **given: cdf.open_index("no-such-folder/", **given),
    "push_to_hub": lambda **given: cdf.push_to_hub("out", "org/name", **given),
    "write_many": lambda **given: cdf.write_many({"out": table()}, **given),
    "blend": lambda **given: cdf.blend({"a": table()}, path="out", epochs={"a": 1}, **given),
    **{
        name: lambda name=name, **given: getattr(cdf, name)("no-such-folder/", **given)
        for name in (
            "read_csv",
            "read_delta",
            "read_iceberg",
            "read_jsonl",
            "read_parquet",
            "read_text_files",
            "read_warc",
        )
    },
}
"""Calls of functions of which the first argument is not a table."""
LITERALS = [
    (name, parameter, choice)
    for name in cdf.__all__
    if inspect.isfunction(function := getattr(cdf, name))
    and name.replace("find_semantic", "drop_semantic") not in WITHOUT_EXTRA
    for parameter, kind in get_type_hints(inspect.unwrap(function)).items()
    if parameter != "return"
    for choice in choices(kind)
    if isinstance(choice, str) and len(choice) >= LEAST_LETTERS
]


def called(name, **given):
    if name in OTHER_CALLS:
        return OTHER_CALLS[name](**given)
    case = next((case for case in CASES if case.operator == name), None)
    if case is not None:
        return case(table(), **given)
    arguments = dict(TAKES_A_TABLE)[name]
    return getattr(cdf, name)(table(), **{**arguments, **given})


@pytest.mark.parametrize(("name", "parameter"), sorted({(name, parameter) for name, parameter, _ in LITERALS}))
def test_a_misspelled_choice_names_the_right_one(name, parameter):
    unclear = []
    is_alone = sum((function, each) == (name, parameter) for function, each, _ in LITERALS) == 1
    for choice in [one for function, each, one in LITERALS if (function, each) == (name, parameter)]:
        misspelled = choice[:1] + choice[2] + choice[1] + choice[3:] if choice[1] != choice[2] else choice[:-1]
        try:
            called(name, **{parameter: misspelled})
        except CuratorError as exc:
            meant = re.escape(repr(choice))
            if not re.search(meant if is_alone else rf"Did you mean .*{meant}.*\?", str(exc)):
                unclear.append(f"{misspelled!r}: {exc}")
        else:
            unclear.append(f"{misspelled!r}: no error")
    assert not unclear, "\n".join(unclear)


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_misspelled_text_column_names_the_right_one(operator):
    case = next(case for case in CASES if case.operator == operator)
    if "text" not in inspect.signature(getattr(cdf, operator)).parameters:
        pytest.skip("it has no parameter text")
    with pytest.raises(CuratorError, match=r"needs the column 'txet'.* Did you mean 'text'"):
        case(table(), text="txet")


def test_a_text_column_that_a_selection_left_out_is_named():
    docs = table()
    said = r"needs the column 'text'; the table has: .*An earlier selection of columns.*left out 'text': keep it until"
    for less in (
        docs[["id", "title"]],
        docs.drop(columns="text"),
        docs[["id", "title"]].pipe(cdf.keep_where, "id > 1"),
    ):
        with pytest.raises(ColumnError, match=said):
            cdf.normalize_unicode(less)
    with pytest.raises(ColumnError) as raised:
        cdf.normalize_unicode(docs.rename(columns={"text": "body"})[["body", "id"]])
    assert "selection" not in str(raised.value)
    assert str(raised.value).endswith("Name the column to use, as in text='body'")
