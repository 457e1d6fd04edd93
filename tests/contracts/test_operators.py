# SPDX-License-Identifier: Apache-2.0
"""Every public operator does to rows, columns and index what its verb says, lazily, and however the table is cut.

What a deferred drop does is in ``test_drops.py``: it takes a run.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import curator_df as cdf
from curator_df.core.ranges.rejects import reject_rows
from curator_df.errors import UnsupportedBackendError
from curator_df.memory.process_cache import release_held
from curator_df.ops.host_only import HOST_ONLY
from tests.contracts.operator_cases import (
    ALL_CASES,
    ALL_OPERATORS,
    BLOCKWISE,
    BOUNDED,
    CASES,
    OPERATORS,
    OTHER_ROWS,
    SAME_ROWS,
    SUBSET,
    WITHOUT_EXTRA,
    computed,
    kernels_of,
    require_documented_rejects,
    table,
)
from tests.contracts.operator_rows import ROWS
from tests.contracts.operator_values import NO_IDENTITY, OTHER_VALUES, TESTED_ELSEWHERE

CHECKOUT = Path(__file__).resolve().parents[2]
CUTS = {
    "3 partitions": (4, 9),
    "a row a partition": range(1, len(ROWS)),
    "one empty": (4, 4, 9),
    "first and last empty": (0, len(ROWS)),
}
BUILD_ALL = """
import sys
from tests.contracts.operator_cases import CASES, table
for case in CASES:
    built = case(table(4, 9))
    built.columns, built.dtypes, built.npartitions
print(sorted({"numba", "ftfy", "cudf", "torch", "transformers"} & set(sys.modules)))
"""


@pytest.fixture(scope="module", autouse=True)
def _forget():
    yield
    release_held()


each_case = pytest.mark.parametrize("case", CASES, ids=str)
each_blockwise = pytest.mark.parametrize("case", BLOCKWISE, ids=str)
is_subset = {str(case): case.operator.startswith(SUBSET) for case in BLOCKWISE}
each_same_rows = pytest.mark.parametrize(
    "case", [c for c in BLOCKWISE if c.operator.startswith(SAME_ROWS) and not is_subset[str(c)]], ids=str
)
each_subset = pytest.mark.parametrize("case", [c for c in BLOCKWISE if is_subset[str(c)]], ids=str)


def outcomes_of(case):
    """Run the kernels of an operator on all rows in one block; yield each with its block and its outcome."""
    block = case.prepared(ROWS)
    for kernel in kernels_of(case(table())):
        outcome = kernel.run(block)
        yield kernel, block, outcome
        block = outcome.block


def test_every_operator_is_held_to_the_contracts():
    covered = {case.operator for case in ALL_CASES}
    missing = [name for name in ALL_OPERATORS if name not in covered and name not in WITHOUT_EXTRA]
    assert missing == [], "add a Case for each to ALL_CASES in tests/contracts/operator_cases.py"
    if uncovered := {extra for name, extra in WITHOUT_EXTRA.items() if name in ALL_OPERATORS}:
        pytest.skip(f"{uncovered} is not installed, which {list(WITHOUT_EXTRA)} need")


def test_every_case_is_of_a_public_operator_and_has_a_name_of_its_own():
    assert {case.operator for case in CASES} <= set(OPERATORS)
    assert len({str(case) for case in CASES}) == len(CASES)


def test_every_parameter_has_another_value():
    wanted = {
        name: {
            parameter
            for parameter in list(inspect.signature(getattr(cdf, name)).parameters)[1:]
            if (name, parameter) not in NO_IDENTITY | TESTED_ELSEWHERE
        }
        for name in OPERATORS
    }
    found = {name: set(OTHER_VALUES.get(name, ())) for name in OPERATORS}
    assert found == wanted, "complete OTHER_VALUES"


def test_operators_are_made_of_kernels_with_a_measured_price():
    for case in CASES:
        kernels = kernels_of(case(table()))
        assert (str(case), {kernel.name for kernel in kernels}) == (str(case), {case.operator})
        measured = {kernel.price.is_measured for kernel in kernels}
        assert (str(case), measured) == (str(case), {case.operator not in BOUNDED})


def test_building_computes_nothing(raise_if_dask_computes):
    for case in CASES:
        docs = table(4, 9)
        with raise_if_dask_computes():
            built = case(docs)
            assert (str(case), list(built.columns)) == (str(case), list(built.dtypes.index))
            assert (str(case), built.npartitions) == (str(case), 3)


def test_building_imports_no_compiler_and_no_gpu_library():
    run = subprocess.run(
        [sys.executable, "-c", BUILD_ALL], cwd=CHECKOUT, capture_output=True, text=True, check=True, timeout=120
    )
    assert run.stdout.strip() == "[]"


@each_blockwise
def test_columns_and_dtypes_are_those_promised_when_it_was_built(case):
    built = case(table())
    result = computed(built)
    assert list(result.columns) == [*ROWS.columns, *case.adds]
    assert result.dtypes.equals(built.dtypes)
    assert result.dtypes[: len(ROWS.columns)].equals(ROWS.dtypes)
    assert result.index.name == ROWS.index.name


@each_same_rows
def test_same_rows_come_out_and_only_the_named_columns_change(case):
    result = computed(case(table()))
    kept = [name for name in ROWS.columns if name not in case.rewrites]
    pd.testing.assert_frame_equal(result[kept], ROWS[kept])
    for name in case.rewrites:
        assert not result[name].equals(ROWS[name])
        assert result[name].isna().equals(ROWS[name].isna())


@each_subset
def test_a_subset_comes_out_in_order_and_unchanged(case):
    result = computed(case(table()))
    assert 0 < len(result) < len(ROWS)
    pd.testing.assert_frame_equal(result[list(ROWS.columns)], ROWS[ROWS.index.isin(result.index)])


@each_blockwise
def test_input_is_not_modified(case):
    blocks = [case.prepared(block) for block in (ROWS.copy(deep=True), ROWS.iloc[3:9], ROWS.iloc[:0])]
    before = [block.copy(deep=True) for block in blocks]
    for block in blocks:
        for kernel in kernels_of(case(table())):
            block = kernel(block)  # noqa: PLW2901
    for block, as_it_was in zip(blocks, before, strict=True):
        pd.testing.assert_frame_equal(block, as_it_was)


@each_blockwise
def test_rows_do_not_depend_on_partitions(case):
    whole = computed(case(table()))
    for cuts in CUTS.values():
        pd.testing.assert_frame_equal(computed(case(table(*cuts))), whole, obj=f"the table cut at {cuts}")


FIRST_CASES = tuple({case.operator: case for case in reversed(BLOCKWISE)}.values())


@pytest.mark.parametrize("case", FIRST_CASES, ids=str)
def test_categories_are_the_texts_that_they_stand_for(case):
    rows = ROWS.astype({"text": "category", "title": "category"})
    built = case(table(4, 9, rows=rows))
    result, texts = computed(built), computed(case(table()))
    assert result.dtypes.equals(built.dtypes)
    pd.testing.assert_frame_equal(result.astype(texts.dtypes), texts)


@each_blockwise
def test_a_table_without_rows_keeps_its_columns_and_dtypes(case):
    result = computed(case(table(rows=ROWS.iloc[:0])))
    pd.testing.assert_frame_equal(result, computed(case(table())).iloc[:0], check_index_type=False)


@each_blockwise
def test_backends_agree_or_are_refused_when_the_operator_is_called(case, backend):
    docs = table(4, 9).to_backend(backend)
    if backend not in case.backends:
        why = re.escape(HOST_ONLY.get(case.operator, ""))
        with pytest.raises(
            UnsupportedBackendError, match=rf"^{case.operator} .*{why}.* first with to_backend\(df, 'pandas'\)$"
        ):
            case(docs)
        return
    result = computed(case(docs))
    result = result if backend == "pandas" else result.to_pandas(nullable=True)
    pd.testing.assert_frame_equal(result, computed(case(table())), check_dtype=backend == "pandas")


@pytest.mark.parametrize("case", [c for c in BLOCKWISE if c.operator not in OTHER_ROWS], ids=str)
def test_every_removed_row_is_counted_under_a_reason(case):
    for _, block, outcome in outcomes_of(case):
        assert sum(outcome.dropped.values()) == len(block) - len(outcome.block)
        assert all(reason and rows > 0 for reason, rows in outcome.dropped.items())


@each_subset
def test_rejects_are_the_removed_rows_each_with_its_reason(case):
    for kernel, block, outcome in outcomes_of(case):
        rejects = reject_rows(kernel.name, block, outcome, ["a.jsonl"], ROWS.iloc[:0])
        removed = ROWS.loc[block.index.difference(outcome.block.index)]
        pd.testing.assert_frame_equal(rejects[list(ROWS.columns)], removed)
        assert rejects["reject_reason"].value_counts().to_dict() == dict(outcome.dropped)
        assert set(rejects["reject_step"]) == {case.operator}
        assert rejects["reject_offset"].tolist() == removed.index.tolist()
        if len(rejects):
            require_documented_rejects(case, rejects)
