# SPDX-License-Identifier: Apache-2.0
"""Two receipts side by side."""

import pandas as pd
import pytest

import curator_df as cdf
from curator_df.receipts.receipt import StepReceipt
from tests.receipts.receipts import receipt


def compared(first, second, kind):
    table = cdf.compare_receipts(first, second)
    return {row.name: (row.first, row.second) for row in table[table.kind == kind].itertuples(index=False)}


def test_figures_come_with_their_ratio():
    table = cdf.compare_receipts(receipt(), receipt(seconds=10.0, measured_bytes=350_000_000)).set_index("name")
    assert table.loc["seconds", ["first", "second", "ratio"]].tolist() == [20.0, 10.0, 0.5]
    assert table.loc["measured_bytes", "ratio"] == 0.5
    assert table.loc["bytes_per_second", ["first", "second", "ratio"]].tolist() == [2e6, 4e6, 2.0]
    assert table.loc["rows_read", "ratio"] == 1.0
    assert pd.isna(table.loc["rows_out_of_memory", "ratio"])


def test_a_resumed_run_has_no_speed():
    assert compared(receipt(), receipt(ranges_resumed=3), "figure")["bytes_per_second"] == (2e6, None)


def test_only_what_differs_is_told_of_settings_retries_and_reasons():
    second = receipt(settings={"layout": "1 thread", "blocks": "4 MB"}, retries={"memory": 3})
    second.steps[1].dropped = {"too_short": 250, "no <b>stop</b> words": 100}
    layout = receipt().settings["layout"]
    assert compared(receipt(), second, "setting") == {"layout": (layout, "1 thread"), "blocks": (None, "4 MB")}
    assert compared(receipt(), second, "retry") == {"memory": (0, 3)}
    assert compared(receipt(), second, "reason") == {"keep_profile: too_short": (200, 250)}
    assert set(cdf.compare_receipts(receipt(), receipt()).kind) == {"figure", "step seconds"}


def test_a_step_that_occurs_twice_is_two_steps():
    twice = receipt(steps=[StepReceipt("keep_where", 9, 8, 1.0), StepReceipt("keep_where", 8, 7, 2.0)])
    assert compared(twice, receipt(steps=[]), "step seconds") == {
        "keep_where": (1.0, None),
        "keep_where (2)": (2.0, None),
    }


def test_what_is_no_receipt_is_refused():
    with pytest.raises(
        cdf.errors.ParameterError, match=r"expected two receipts; got str\. read_receipt\(folder\) returns the receipt"
    ):
        cdf.compare_receipts(receipt(), "out/")
