# SPDX-License-Identifier: Apache-2.0
"""`remove_outside`, `remove_lines`, `redact_pii` and their like: what is refused, and what reaches the receipt."""

from __future__ import annotations

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df.errors import ColumnError, ParameterError, SchemaError
from tests.contracts.operator_cases import kernels_of

BLOCK = pd.DataFrame({"id": [1, 2], "text": pd.array(["mail a@b.org and c@d.org", None], "string[pyarrow]")})
DOCS = dd.from_pandas(BLOCK, npartitions=1)


def test_wrong_ends_are_refused():
    with pytest.raises(ParameterError, match=r"left=1\.5 must be an int, a str or None"):
        DOCS.pipe(cdf.remove_outside, left=1.5)
    with pytest.raises(ParameterError, match="right is an empty str"):
        DOCS.pipe(cdf.remove_outside, right="")


@pytest.mark.parametrize("lines", ["a line", [], [1]])
def test_lines_that_are_none_are_refused(lines):
    with pytest.raises(ParameterError, match=r"remove_lines: lines=.* is not a list of lines"):
        DOCS.pipe(cdf.remove_lines, lines)


def test_a_line_with_a_line_feed_is_refused():
    with pytest.raises(ParameterError, match=r"remove_lines: 'a\\nb' in lines= has a line feed in it"):
        DOCS.pipe(cdf.remove_lines, ["a\nb"])


def test_wrong_redactions_are_refused():
    with pytest.raises(ParameterError, match="kinds='name' is not one of 'key', 'email'"):
        DOCS.pipe(cdf.redact_pii, kinds=["name"])
    with pytest.raises(ParameterError, match=r"kinds is empty\. Name some of 'key'"):
        DOCS.pipe(cdf.redact_pii, kinds=[])
    with pytest.raises(ParameterError, match="replacement='stars' is not one of 'label', 'hash', 'mask'"):
        DOCS.pipe(cdf.redact_pii, replacement="stars")
    with pytest.raises(ParameterError, match="key= is used only with replacement='hash'"):
        DOCS.pipe(cdf.redact_pii, key="secret")
    with pytest.raises(ParameterError, match=r"key= has 65 bytes, but the hash function \(BLAKE2b\) takes at most 64"):
        DOCS.pipe(cdf.redact_pii, replacement="hash", key=b"x" * 65)


def test_what_was_redacted_is_counted_by_kind():
    (kernel,) = kernels_of(DOCS.pipe(cdf.redact_pii))
    assert kernel.run(BLOCK).counters == {"email": 2, "rows_changed": 1}


def test_one_kind_may_be_named_alone():
    assert DOCS.pipe(cdf.redact_pii, kinds="ip").compute()["text"][0] == BLOCK["text"][0]


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        ("normalize_whitespace", {}), ("redact_pii", {}), ("remove_boilerplate", {}), ("remove_html", {}),
        ("remove_lines", {"lines": ["a"]}), ("remove_markdown", {}), ("remove_outside", {}), ("remove_quotation_marks", {}),
    ],
)  # fmt: skip
def test_wrong_columns_are_refused_when_the_operator_is_called(operator, arguments):
    with pytest.raises(ColumnError, match=f"{operator} needs the column 'body'"):
        getattr(cdf, operator)(DOCS, text="body", **arguments)
    with pytest.raises(SchemaError, match=f"{operator} needs text in the column 'id'"):
        getattr(cdf, operator)(DOCS, text="id", **arguments)
