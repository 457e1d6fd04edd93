# SPDX-License-Identifier: Apache-2.0
"""The names of kernels are those of the modules, and each operator that calls any is known."""

import ast
from pathlib import Path

import pytest

import curator_df as cdf
from curator_df.core.planning.lowering import lower
from curator_df.errors import ParameterError
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.compiling.kernel_sets import (
    COMPILE_SECONDS,
    EVERY_RUN,
    OPERATORS,
    compile_seconds,
    kernels_to_warm,
    near_duplicates,
)
from curator_df.kernels.minhash.scheme import Scheme

FOLDER = Path(kernel_sets.__file__).parents[1]
CALLED_BY_KERNELS_ALONE = {
    "text.murmur_windows.murmur_32",
    "text.murmur_windows._hash_windows_32",
    "text.murmur_windows._hash_windows_64",
    "minhash.shingle_hashes.roll_windows",
}


def is_kernel(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and any(
        ast.unparse(one).startswith("kernel(") for one in node.decorator_list
    )


def test_every_kernel_has_its_seconds():
    declared = {
        f"{'.'.join(path.relative_to(FOLDER).with_suffix('').parts)}.{node.name}"
        for path in FOLDER.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if is_kernel(node)
    }
    assert set(COMPILE_SECONDS) == declared - CALLED_BY_KERNELS_ALONE
    assert declared > CALLED_BY_KERNELS_ALONE


def test_every_set_names_kernels_and_every_kernel_is_in_a_set():
    sets = [value for name, value in vars(kernel_sets).items() if name.isupper() and isinstance(value, tuple)]
    named = {kernel for one in sets for kernel in one} | {kernel for one in OPERATORS.values() for kernel in one}
    assert named == set(COMPILE_SECONDS)


def test_operators_are_public():
    assert set(OPERATORS) <= set(cdf.__all__)


def test_near_duplicates_need_kernels_of_their_bits_and_their_kind_of_shingles_only():
    few = near_duplicates("characters", use_64_bit_hash=False, compares_texts=False)
    assert not any("64" in kernel or "words" in kernel or "normalized" in kernel for kernel in few)
    assert not any(kernel.startswith("minhash.jaccard.") for kernel in few)
    more = near_duplicates("words", use_64_bit_hash=True, compares_texts=True)
    assert not any("32" in kernel or "characters" in kernel for kernel in more)
    assert {f"minhash.{name}_of_words" for name in ("jaccard.similarities", "residuals.residuals")} | {
        "minhash.sketch.sketch_words_64"
    } < set(more)


@pytest.mark.parametrize(
    "scheme", [Scheme("characters", 5, 2, 2), cdf.minhash.FINEWEB, cdf.minhash.NEMO], ids=lambda one: one.name
)
def test_an_operator_names_the_kernels_that_its_scheme_calls(tmp_path, scheme):
    (tmp_path / "a.jsonl").write_text('{"text": "one two three"}\n')
    docs = cdf.read_jsonl(tmp_path / "a.jsonl")
    unit = "words" if scheme.ngrams == "words" else "normalized" if scheme.normalize else "characters"
    kernel = f"minhash.sketch.sketch_{unit}_{64 if scheme.use_64_bit_hash else 32}"
    for action in (cdf.add_minhash(docs, scheme=scheme), cdf.drop_near_duplicates(docs, scheme=scheme)):
        named = [name for step in lower(action).steps for name in step.action.compiled]
        assert [name for name in named if "sketch" in name] == [kernel]


@pytest.mark.parametrize(("threshold", "compares"), [(0.8, True), (None, False)])
def test_a_drop_names_kernels_that_compare_texts_only_where_texts_are_compared(tmp_path, threshold, compares):
    (tmp_path / "a.jsonl").write_text('{"text": "one two three"}\n')
    dropped = cdf.drop_near_duplicates(cdf.read_jsonl(tmp_path / "a.jsonl"), jaccard_threshold=threshold)
    named = lower(dropped).steps[0].action.compiled
    assert any(name.startswith("minhash.jaccard.") for name in named) == compares
    assert not any(name.startswith("minhash.frequent_shingles.") for name in named)


def test_a_drop_names_kernels_that_count_shingles_only_where_common_ones_are_ignored(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one two three"}\n')
    dropped = cdf.drop_near_duplicates(cdf.read_jsonl(tmp_path / "a.jsonl"), scheme="fineweb", ignore_common=0.1)
    named = lower(dropped).steps[0].action.compiled
    assert set(kernel_sets.frequent_shingles("words")) < set(named)
    assert not any("characters" in name for name in named)


def test_what_the_command_compiles():
    assert kernels_to_warm([], is_all=True) == tuple(COMPILE_SECONDS)
    assert kernels_to_warm(["redact_pii", "redact_pii"], is_all=False) == (*EVERY_RUN, *kernel_sets.PERSONAL_DATA)
    assert kernels_to_warm(["describe_domains"], is_all=False) == (*EVERY_RUN, *kernel_sets.CONTENT)
    assert set(kernel_sets.JSON_LINES) < set(kernels_to_warm([], is_all=False)) < set(COMPILE_SECONDS)
    with pytest.raises(
        ParameterError, match=r"'sort' has no kernels .*\. The operators with kernels are add_comment_ratio, "
    ):
        kernels_to_warm(["sort"], is_all=False)
    with pytest.raises(ParameterError, match="leave out either --all or the operators"):
        kernels_to_warm(["redact_pii"], is_all=True)


def test_seconds_add_up():
    assert compile_seconds([]) == 0
    assert compile_seconds(["rows.keep_rows.copy_rows"]) < compile_seconds(COMPILE_SECONDS)
