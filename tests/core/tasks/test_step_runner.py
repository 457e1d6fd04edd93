# SPDX-License-Identifier: Apache-2.0
from types import SimpleNamespace

import pandas as pd
import pytest

from curator_df.core.ranges.source import ADDRESS
from curator_df.core.tasks.step_runner import without_failed_rows
from curator_df.errors import OperatorError

STEP = SimpleNamespace(name="remove_html")
FAILED = {1: "took more than 10 CPU seconds"}


@pytest.mark.parametrize(
    ("index", "set_aside", "said"),
    [
        (None, None, r"on row 1 of a block\. Write the table with on_error='quarantine'"),
        (
            None,
            list[object]().append,
            r"on row 1 of a block\. on_error='quarantine' is set, but an earlier step replaced the index",
        ),
        (ADDRESS, None, r"on a\.jsonl .*\. Write the table with on_error='quarantine'"),
    ],
    ids=["no ID", "no ID, quarantine", "ID"],
)
def test_the_error_for_rows_that_cannot_be_quarantined_says_what_is_missing(index, set_aside, said):
    block = pd.DataFrame({"text": ["a", "b"]}, index=pd.Index([0, 5], name=index))
    with pytest.raises(OperatorError, match=said):
        without_failed_rows(STEP, block, FAILED, ["a.jsonl"], set_aside)
