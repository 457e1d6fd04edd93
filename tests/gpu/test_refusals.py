# SPDX-License-Identifier: Apache-2.0
"""Every operator refuses blocks that it does not take, by name and with a way out, before anything is copied or computed."""

import re
from pathlib import Path

import pytest

from curator_df.core import backend as backends
from curator_df.errors import UnsupportedBackendError
from tests.contracts.operator_cases import CASES, OPERATORS, table


@pytest.mark.parametrize("case", [case for case in CASES if "cudf" not in case.backends], ids=str)
def test_cudf_blocks_are_refused_with_the_way_out(case, monkeypatch, raise_if_dask_computes):
    docs = table()
    # There is no empty cuDF table without a driver, so the one place that tells the kinds apart is told a lie.
    monkeypatch.setattr(backends, "backend_of", lambda block: "cudf")
    expected = (
        rf"{case.operator} works on pandas blocks, and this table has cudf.*{re.escape('to_backend')}\('pandas'\)"
    )
    with raise_if_dask_computes(), pytest.raises(UnsupportedBackendError, match=expected):
        case(docs)


def test_the_page_lists_each_operator_with_what_it_does_to_cudf_blocks():
    page = (Path(__file__).resolve().parents[2] / "docs/gpu.md").read_text()
    listed = dict(re.findall(r"^\| `(\w+)` \| (\w+) \| [\w ]+ \|$", page, flags=re.MULTILINE))
    takes = {case.operator for case in CASES if "cudf" in case.backends}
    assert listed == {name: "taken" if name in takes else "refused" for name in OPERATORS}
