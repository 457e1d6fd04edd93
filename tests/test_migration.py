# SPDX-License-Identifier: Apache-2.0
"""The pages on moving from NeMo Curator name all that it has, and call what is here as it can be called.

The list of names was read from the packages with ast; the comment at its beginning says what is on it.
"""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import curator_df as cdf
from curator_df.kernels.metrics.catalog import CATALOGUE
from tests.test_docs import CHECKOUT, code_blocks, prose_of, rows_of

NAMES = Path(__file__).parent / "data/nemo_names.txt"
PAGES = [CHECKOUT / "docs/migration.md", *sorted((CHECKOUT / "docs/migration").glob("*.md"))]
CODE = [
    pytest.param(source, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, source in enumerate(code_blocks(page.read_text(), "python"))
]
PROFILES = ("NEMO_ENGLISH", "NEMO_CODE", "NEMO_CODE_COMMENTS", "NEMO_CODE_HTML", "NEMO_CODE_TOKENS")
NOT_TEXT = re.compile(
    r"image|datasets\.image_text_pair_dataset|stages\.(audio|image|interleaved|video|synthetic\.omni)\b"
    r"|models\.(aesthetics|asr|clip|cosmos_embed1|internvideo2_mm|nemotron_\w+|nsfw|qwen_vl|sed|transnetv2)\b"
    r"|tasks\.(audio_batch|audio_task|image|interleaved|ocr|video)\b|utils\.(decoder|nvcodec|windowing|writer)_utils\b"
)
"""Modules of which only the names of classes are asked for."""


def words_in_backticks(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", text))))


@cache
def sections() -> list[frozenset[str]]:
    """Return the words in backticks of each section of each page."""
    return [
        words_in_backticks(section)
        for page in PAGES
        for section in re.split(r"^## ", prose_of(page.read_text()), flags=re.MULTILINE)
    ]


def listed() -> list[tuple[str, str, str, bool, list[str]]]:
    """Return version, module, name, whether it has a star, and parameters; a script has the module "script"."""
    found = []
    for line in NAMES.read_text().splitlines():
        if line and not line.startswith("#"):
            head, _, parameters = line.partition(":")
            *version, module, name = head.split()
            found.append((version[0] if version else "0.9", module, name.rstrip("*"), "*" in name, parameters.split()))
    return found


def is_class(name: str) -> bool:
    return name[0].isupper()


def test_the_list_is_whole():
    classes = [(version, module) for version, module, name, _, _ in listed() if is_class(name)]
    for_text = [version for version, module in classes if not NOT_TEXT.match(module)]
    assert [sum(of == version for of, _ in classes) for version in ("0.9", "1.4")] == [204, 463]
    assert [for_text.count(version) for version in ("0.9", "1.4")] == [195, 275]
    assert sum(module == "script" for _, module, _, _, _ in listed()) == 38


def test_every_class_function_and_script_of_nemo_curator_is_on_the_pages():
    everywhere = frozenset().union(*sections())
    assert [(version, module, name) for version, module, name, _, _ in listed() if name not in everywhere] == []


def test_every_parameter_is_in_a_section_that_has_its_class():
    missing = []
    for version, _, name, _, parameters in listed():
        near = frozenset().union(*(words for words in sections() if name in words))
        missing += [(version, name, parameter) for parameter in parameters if parameter not in near]
    assert missing == []


def test_of_classes_only_those_that_are_not_for_text_go_without_their_parameters():
    starred = [(module, name) for _, module, name, star, _ in listed() if star and is_class(name)]
    assert [module for module, _ in starred if not NOT_TEXT.match(module)] == ["examples.k8s.create_dask_cluster"]
    not_text = (CHECKOUT / "docs/migration/models.md").read_text().partition("## Not text")[2]
    named = words_in_backticks(not_text)
    assert [name for module, name in starred if NOT_TEXT.match(module) and name not in named] == []


def name_of(node: ast.expr) -> str:
    """Return what a call calls if it is one of ours: ``cdf.f``, ``docs.curate.f``."""
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("cdf", "docs.curate"):
        return node.attr
    return ""


def calls_of_ours(source: str) -> list[tuple[str, list[Any], list[str]]]:
    """Return what the code calls, with its positional arguments and the names of the others."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        keywords = [keyword.arg for keyword in node.keywords if keyword.arg]
        if isinstance(node.func, ast.Attribute) and node.func.attr == "pipe" and node.args:
            found.append((name_of(node.args[0]), node.args, keywords))  # the table takes the place of the function
        else:
            found.append((name_of(node.func), node.args, keywords))
    return [call for call in found if call[0]]


def accepted(name: str) -> inspect.Signature:
    return inspect.signature(getattr(cdf, name))


@pytest.mark.parametrize("source", CODE)
def test_code_calls_what_is_here_with_what_it_takes(source):
    assert set(re.findall(r"\bcdf\.(\w+)", source)) <= set(cdf.__all__)
    for name, arguments, keywords in calls_of_ours(source):
        if inspect.isfunction(getattr(cdf, name)):
            accepted(name).bind(*arguments, **dict.fromkeys(keywords))


def test_code_names_metrics_and_reasons_that_there_are():
    reasons = {reason for name in PROFILES for reason in getattr(cdf.profiles, name).reasons}
    calls = 0
    for param in CODE:
        for node in ast.walk(ast.parse(param.values[0])):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Rule":
                metric = node.args[0]
                assert isinstance(metric, ast.Name) or ast.literal_eval(metric) in CATALOGUE
                calls += 1
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("NEMO_ENGLISH.replace"):
                assert {keyword.arg for keyword in node.keywords} <= reasons
                calls += 1
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("cdf.classifiers", "cdf.minhash"):
                assert node.attr in getattr(cdf, ast.unparse(node.value).removeprefix("cdf.")).__all__
                calls += 1
    assert calls > 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_column_of_ours_calls_what_is_here_with_what_it_takes(page):
    """Tables have ours in a column with the head "here": a keyword there is one of the function before it."""
    heads: list[str] = []
    wrong, seen = [], 0
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip()[1:-1].split("|")] if line.startswith("|") else []
        if not cells:
            heads = []
        elif not heads:
            heads = cells
        elif "here" in heads and not line.startswith("|---"):
            for name, arguments in re.findall(r"(\w+)\(([^()]*)\)", cells[heads.index("here")]):
                if name in cdf.__all__ and callable(getattr(cdf, name)):
                    seen += 1
                    taken = accepted(name).parameters
                    options = (
                        accepted("job_cluster").parameters if "options" in taken and name == "slurm_cluster" else {}
                    )
                    named = re.findall(r"(\w+)=", re.sub(r'"[^"]*"', '""', arguments))
                    wrong += [(name, keyword) for keyword in named if keyword not in {*taken, *options}]
    assert wrong == []
    assert seen or page.stem == "migration"


def test_filters_are_beside_metrics_and_reasons_that_there_are():
    rows = rows_of((CHECKOUT / "docs/migration/filters.md").read_text(), "filter", "parameter, default of the class")
    assert len(rows) == 28
    rules = {(rule.metric, rule.reason) for name in PROFILES for rule in getattr(cdf.profiles, name).rules}
    reasons = {reason for _, reason in rules}
    for _, _, metrics, said in rows:
        for metric in re.findall(r"`(\w+)`", metrics):
            assert metric in CATALOGUE
            assert {reason for known, reason in rules if known == metric} & set(re.findall(r"`(\w+)`", said)), metric
        assert set(re.findall(r"`(\w+)`", said)) <= reasons
