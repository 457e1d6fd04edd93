# SPDX-License-Identifier: Apache-2.0
"""Every operator refuses blocks that it does not take, by name and with a way out, before anything is copied or computed."""

import re
from pathlib import Path

import pytest

from curator_df.core import backend as backends
from curator_df.errors import UnsupportedBackendError
from curator_df.ops import metrics, profile
from tests.contracts.operator_cases import CASES, OPERATORS, table

NO_KERNEL = r"has no kernel for cuDF blocks that measures|cuts the texts of cuDF blocks at white space alone"


@pytest.mark.parametrize("case", [case for case in CASES if "cudf" not in case.backends], ids=str)
def test_cudf_blocks_are_refused_with_the_way_out(case, monkeypatch, raise_if_dask_computes):
    docs = table()
    # There is no empty cuDF table without a driver, so those who tell the kinds apart are told a lie.
    for module in (backends, metrics, profile):
        monkeypatch.setattr(module, "backend_of", lambda block: "cudf")
    takes_some = any("cudf" in other.backends for other in CASES if other.operator == case.operator)
    why = NO_KERNEL if takes_some else "works on pandas blocks, and this table has cudf"
    expected = rf"{case.operator} ({why}).*{re.escape('to_backend')}\('pandas'\)"
    with raise_if_dask_computes(), pytest.raises(UnsupportedBackendError, match=expected):
        case(docs)


def test_the_page_lists_each_operator_with_what_it_does_to_cudf_blocks():
    page = (Path(__file__).resolve().parents[2] / "docs/gpu.md").read_text().partition("\n## cuDF blocks\n")[2]
    listed = dict(re.findall(r"^\| `(\w+)` \| ([\w ]+ \| [\w ]+) \|$", page, flags=re.MULTILINE))
    takes = {name: {"cudf" in case.backends for case in CASES if case.operator == name} for name in OPERATORS}
    states = {
        (True,): "taken | simulated",
        (False, True): "taken in part | simulated",
        (False,): "refused | refusal tested",
    }
    assert listed == {name: states[tuple(sorted(takes[name]))] for name in OPERATORS}
