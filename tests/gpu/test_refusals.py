# SPDX-License-Identifier: Apache-2.0
"""Every operator refuses blocks that it does not take, by name, with the reason and a way out, before anything is computed."""

import inspect
import re
from dataclasses import replace
from pathlib import Path

import pytest

import curator_df as cdf
from curator_df.core import backend as backends
from curator_df.core.planning.device_plan import TO_HOST
from curator_df.core.ranges.foreign_step import FOREIGN_PEAK_FACTOR
from curator_df.errors import UnsupportedBackendError
from curator_df.io.device_transfer import TO_DEVICE
from curator_df.kernels.rows import either_backend
from curator_df.ops.duplicates import near_duplicates
from curator_df.ops.filters import device_blocks, metrics, profile
from curator_df.ops.host_only import HOST_ONLY
from curator_df.profiles.minhash import FINEWEB, NEMO
from tests.contracts.operator_cases import (
    ALL_CASES,
    ALL_OPERATORS,
    CASES,
    OPERATORS,
    OURS,
    kernels_of,
    table,
)

WAY_OUT = r"convert (it|the table) first with to_backend\(df, 'pandas'\)"
REFUSED = "works on pandas blocks, and this table has cudf blocks: {}"
IN_PART = (
    r"cannot measure [\w, ]+ on cuDF blocks",
    (
        r"splits the texts of cuDF blocks only at white space, and words='\w+' was set: such words are found only on the CPU"
        r"\. Pass words='whitespace', or"
    ),
    r"can hash only one column of text of a table on a GPU \(cudf blocks\), but was given [^;]+",
    REFUSED.format("with identity='content' the digits of hashes are written in host memory"),
    REFUSED.format(r"(lines|paragraphs) are cut out by a kernel that is compiled for CPUs alone"),
    "with ignore_common= " + REFUSED.format(r"shingles are counted by a kernel that is compiled for CPUs alone"),
    REFUSED.format(r"with by= rows are judged by kernels compiled for CPUs alone"),
)
"""What is said of some arguments by operators that take cuDF blocks with others."""
TAKES_SOME = {case.operator for case in ALL_CASES if "cudf" in case.backends}
BESIDE_OPERATORS = {
    "describe",
    "describe_domains",
    "describe_drops",
    "describe_importance",
    "explore_thresholds",
    "find_semantic_duplicates",
    "write_tokens",
}
"""What is no operator, takes a table, and takes no cuDF blocks."""


@pytest.fixture
def cudf_blocks(monkeypatch):
    # There is no empty cuDF table without a driver, so those who tell the kinds apart are told a lie.
    for module in (backends, metrics, profile):
        monkeypatch.setattr(module, "backend_of", lambda block: "cudf")
    for module in (device_blocks, either_backend):
        monkeypatch.setattr(module, "is_on_device", lambda block: True)


@pytest.mark.usefixtures("cudf_blocks")
@pytest.mark.parametrize("case", [case for case in CASES if "cudf" not in case.backends], ids=str)
def test_cudf_blocks_are_refused_with_the_reason_and_the_way_out(case, raise_if_dask_computes):
    docs = table()
    why = "|".join(IN_PART) if case.operator in TAKES_SOME else REFUSED.format(re.escape(HOST_ONLY[case.operator]))
    with (
        raise_if_dask_computes(),
        pytest.raises(UnsupportedBackendError, match=f"^{case.operator} ({why})[; ]+{WAY_OUT}$"),
    ):
        case(docs)


@pytest.mark.usefixtures("cudf_blocks")
@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda docs: cdf.describe_drops(docs, OURS), f"describe_drops {REFUSED.format(HOST_ONLY['describe_drops'])}"),
        (cdf.describe, f"describe {REFUSED.format(HOST_ONLY['describe'])}"),
        (
            lambda docs: cdf.describe_domains(docs, url="text"),
            f"describe_domains {REFUSED.format(HOST_ONLY['describe_domains'])}",
        ),
        (
            lambda docs: cdf.explore_thresholds(docs, metrics=["score"]),
            f"explore_thresholds {REFUSED.format(HOST_ONLY['explore_thresholds'])}",
        ),
        (
            lambda docs: cdf.find_semantic_duplicates(docs, eps=0.1, embedding="score", workdir="unused"),
            f"find_semantic_duplicates {REFUSED.format(HOST_ONLY['find_semantic_duplicates'])}",
        ),
        (
            lambda docs: cdf.keep_profile(docs.assign(word_count=1, hash_ratio=0.5), OURS, from_metrics=True),
            (
                "keep_profile reads metrics from columns only in host memory (pandas blocks), "
                "and this table is on a GPU (cudf blocks)"
            ),
        ),
        (
            lambda docs: cdf.drop_exact_duplicates(docs, keep_keys="keys"),
            f"drop_exact_duplicates with against=, keep_keys= or index= {REFUSED.format(HOST_ONLY['add_minhash'])}",
        ),
        (
            lambda docs: cdf.drop_near_duplicates(docs.assign(minhash=0), signatures="minhash"),
            f"drop_near_duplicates with signatures= or against= {REFUSED.format(HOST_ONLY['add_minhash'])}",
        ),
    ],
    ids=[
        "describe_drops",
        "describe",
        "describe_domains",
        "explore_thresholds",
        "find_semantic_duplicates",
        "from_metrics",
        "keep_keys",
        "signatures",
    ],
)
def test_so_is_what_no_case_calls(call, why, raise_if_dask_computes, monkeypatch):
    monkeypatch.setattr(near_duplicates, "require_stored", lambda *found: None)
    docs = table()
    with raise_if_dask_computes(), pytest.raises(UnsupportedBackendError, match=f"^{re.escape(why)}; {WAY_OUT}$"):
        call(docs)


def test_there_is_a_reason_for_each_function_that_takes_no_cudf_blocks_and_for_no_other():
    assert set(HOST_ONLY) == set(ALL_OPERATORS) - TAKES_SOME | BESIDE_OPERATORS
    assert not [why for why in HOST_ONLY.values() if why.endswith(".") or ";" in why or len(why) < 20]


def test_the_page_lists_each_operator_with_what_it_does_to_cudf_blocks():
    page = (Path(__file__).resolve().parents[2] / "docs/gpu.md").read_text().partition("\n## cuDF blocks\n")[2]
    page, _, beside = page.partition("\nOperators with a model")
    listed = dict(re.findall(r"^\| `(\w+)` \| ([\w ]+ \| [\w ]+) \|$", page, flags=re.MULTILINE))
    takes = {name: {"cudf" in case.backends for case in CASES if case.operator == name} for name in OPERATORS}
    takes["drop_near_duplicates"].add(False)  # with signatures= and against=, of which there is no case
    states = {
        (True,): "taken | simulated",
        (False, True): "taken in part | simulated",
        (False,): "refused | refusal tested",
    }
    assert set(listed) == set(ALL_OPERATORS)
    assert {name: listed[name] for name in OPERATORS} == {
        name: states[tuple(sorted(takes[name]))] for name in OPERATORS
    }
    takes_model = {"str | os.PathLike[str] | Model", "Classifies"}
    with_model = {
        name
        for name in ALL_OPERATORS
        for parameter in parameters_of(getattr(cdf, name)).values()
        if str(parameter.annotation) in takes_model or str(parameter.annotation).endswith("Any] | Model")
    }
    finding = {name for name in cdf.__all__ if name.startswith("find_")}
    assert set(re.findall(r"^\| `(\w+)` \| [^|]+ \| (?:simulated|untested) \|$", beside, flags=re.MULTILINE)) == (
        with_model | finding
    )


def parameters_of(public):
    return inspect.signature(public).parameters if inspect.isfunction(public) else {}


def test_the_prices_on_the_page_are_those_of_the_kernels():
    page = (Path(__file__).resolve().parents[2] / "docs/gpu.md").read_text()
    page = page.partition("\n### GPU memory of a run\n")[2].partition("\n## ")[0]
    listed = {
        row[0]: row[1] for row in re.findall(r"^\| (`.+?|steps of your own) \| (.+?) \|", page, flags=re.MULTILINE)
    }
    docs = table()
    priced = {
        "keep_where": docs.pipe(cdf.keep_where, "id > 3"),
        "sample_rows": docs.pipe(cdf.sample_rows, 0.5),
        "add_ids": docs.pipe(cdf.add_ids, into="number"),
        "drop_exact_duplicates": docs.pipe(cdf.drop_exact_duplicates),
    }
    factors = {f"`{name}`": kernels_of(one)[-1].price.device_peak_factor for name, one in priced.items()}
    factors |= {
        '`to_backend(df, "cudf")`': TO_DEVICE.price.device_peak_factor,
        "steps of your own": FOREIGN_PEAK_FACTOR,
    }
    factors['`to_backend(df, "pandas")`'] = TO_HOST.price.device_peak_factor
    for name, factor in factors.items():
        assert float(listed.pop(name)) == pytest.approx(factor), name
    schemes = (NEMO, replace(NEMO, normalize="case_and_spaces"), FINEWEB)
    near = [kernels_of(docs.pipe(cdf.drop_near_duplicates, scheme=one))[-1].price.device_peak_factor for one in schemes]
    said = re.findall(r"\d\.\d", listed.pop("`drop_near_duplicates`"))
    assert [float(figure) for figure in said] == pytest.approx([near[0], near[1] - near[0], near[2] - near[0]])
    (said,) = (words for name, words in listed.items() if "`add_metrics`" in name)
    alike = (
        ("duplicate_line_ratio", "top_2_gram_character_ratio", "character_count"),
        ("nemo_top_2_gram_character_ratio", "unique_line_ratio", "dolma_repeated_line_ratio"),
        ("dclm_repeated_line_ratio", "dclm_repeated_paragraph_ratio"),
        ("dclm_top_2_gram_character_ratio", "dclm_repeated_5_gram_character_ratio"),
        ("c4_sentence_count", "c4_unpunctuated_lorem_ipsum"),
    )
    (counted,) = more_than(0, ["word_count"])
    figures = [counted]
    for names in alike:
        (figure,) = more_than(counted, names)
        figures.append(figure)
    figures.append(kernels_of(cdf.keep_profile(docs, OURS))[-1].price.device_peak_factor - counted)
    assert [float(figure) for figure in re.findall(r"\d+\.\d", said)] == pytest.approx(figures)


def more_than(counted, names):
    """Return what a table takes of a GPU for each of some metrics over what is counted: one figure, where they are alike."""
    return {
        round(kernels_of(cdf.add_metrics(table(), [name]))[-1].price.device_peak_factor - counted, 6) for name in names
    }
