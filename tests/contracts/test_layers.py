# SPDX-License-Identifier: Apache-2.0
"""Imports go one way: a module imports only from its own layer and those above it in `LAYERS`."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "curator_df"
LAYERS = (
    "suggestions",
    "errors",
    "arguments",
    "extras",
    "memory",
    "files",
    "receipts",
    "core",
    "kernels",
    "exchange",
    "io",
    "dedup",
    "ops",
    "profiles",
    "models",
    "interactive",
    "cluster",
    "monitor",
    "recipes",
    "demo_corpus",
    "__init__",
    "standard_streams",
    "demo",
    "cli",
)
TOP_LEVEL = {
    *("CHANGELOG.md", "CITATION.cff", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md"),
    *("benchmarks", "curator_df", "docs", "notebooks", "tests", "Makefile", "hatch_build.py", "pyproject.toml"),
}
"""Files and folders at the top level of the repository; names that begin with a dot are also allowed."""
CORE_GROUPS = ("", "ranges", "planning", "tasks", "runner")
"""Folders of ``core/``: a module imports, when it is imported itself, only from its own folder and those before it."""
KEPT_OUT = {
    "memory": {"distributed", "numba", "pandas", "transformers", "ftfy"},
    "files": {"dask", "torch", "transformers", "numba", "pandas", "ftfy"},
    "receipts": {"dask", "distributed", "torch", "transformers", "numba", "ftfy", "cudf"},
    "core": {"torch", "transformers", "numba", "ftfy", "cudf", "rmm", "cupy"},
    "kernels": {"dask", "distributed", "fsspec", "torch", "transformers"},
    "exchange": {"torch", "transformers", "numba", "ftfy"},
    "io": {"torch", "transformers", "numba", "ftfy"},
    "ops": {"torch", "transformers"},
    "profiles": {"dask", "distributed", "pandas", "numpy", "numba", "torch"},
}
"""Packages that a layer must do without, because of what the layer is."""


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    """Return the parsed modules of the package by path: a million objects, which later collections of garbage would walk."""
    return {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_in(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted names that a module imports, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)


def broken_rules(layer: str, tree: ast.AST) -> list[str]:
    allowed = {*LAYERS[: LAYERS.index(layer) + 1]}
    broken = []
    for name in imports_in(tree):
        package, _, rest = name.partition(".")
        part = rest.partition(".")[0]
        if package == "curator_df":
            wanted = part if part in LAYERS else "__init__"
            broken += [] if wanted in allowed else [f"{name} is in {wanted}, below {layer}"]
        elif package in KEPT_OUT.get(layer, set()) or not package:
            broken.append(f"{name} has no place in {layer}")
    return broken


def test_every_module_is_in_a_layer(trees: dict[Path, ast.Module]) -> None:
    assert [name_of(path) for path in trees if layer_of(path) not in LAYERS] == []


def test_imports_go_one_way(trees: dict[Path, ast.Module]) -> None:
    broken = {path: broken_rules(layer_of(path), tree) for path, tree in trees.items() if layer_of(path) in LAYERS}
    backend = PACKAGE / "core" / "backend.py"
    broken[backend] = [rule for rule in broken[backend] if "cudf" not in rule]
    # Profiles and schemes are made of values of this layer, and are looked up by name when an operator is called.
    published = PACKAGE / "ops" / "filters" / "published.py"
    assert set(broken.pop(published)) == {
        "curator_df.profiles is in profiles, below ops",
        "curator_df.profiles.minhash is in profiles, below ops",
    }
    assert {name_of(path): rules for path, rules in broken.items() if rules} == {}


def group_of(name: str) -> str:
    """Return the folder of ``core/`` that a dotted name below ``curator_df.core`` is in."""
    first = name.split(".", maxsplit=1)[0]
    return first if first in CORE_GROUPS else ""


def broken_within_core(folder: str, tree: ast.Module) -> list[str]:
    """Return what a module in a folder of ``core/`` imports, when it is imported itself, from folders that come after."""
    allowed = CORE_GROUPS[: CORE_GROUPS.index(folder) + 1]
    at_the_top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = imports_in(ast.Module(at_the_top, []))
    ours = [name.removeprefix("curator_df.core.") for name in names if name.startswith("curator_df.core.")]
    return [name for name in ours if group_of(name) not in allowed]


def test_imports_within_core_go_one_way(trees: dict[Path, ast.Module]) -> None:
    core = PACKAGE / "core"
    folders = {path: path.parent.relative_to(core).as_posix() for path in trees if core in path.parents}
    broken = {
        path: broken_within_core("" if folder == "." else folder, trees[path]) for path, folder in folders.items()
    }
    assert {name_of(path): names for path, names in broken.items() if names} == {}


def only_importers(trees: dict[Path, ast.Module]) -> dict[str, str]:
    """Return the importer of each module from which one other imports names, inside functions too."""
    names = {path: ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in trees}
    modules = {name.removesuffix(".__init__"): path.stem != "__init__" for path, name in names.items()}
    importers = defaultdict(set)
    for path, tree in trees.items():
        for name in imports_in(ast.Module([node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)], [])):
            target = name if name in modules else name.rpartition(".")[0]
            importers[target].add(names[path].removesuffix(".__init__"))
    found = {name: users - {name} for name, users in importers.items() if modules.get(name)}
    return {name: next(iter(users)) for name, users in found.items() if len(users) == 1}


def test_modules_with_one_importer_are_as_many_as_the_decision_says(trees: dict[Path, ast.Module]) -> None:
    [decision] = (PACKAGE.parent / "docs" / "decisions").glob("0045-*.md")
    said = [int(number) for number in re.findall(r"\*\*(\d+)\*\*", decision.read_text())]
    alone = only_importers(trees)
    of_kind = Counter(
        "kernels" if name.startswith("curator_df.kernels.") else importer for name, importer in alone.items()
    )
    profiles, package = of_kind["curator_df.profiles"], of_kind["curator_df"]
    assert said == [len(alone), package, of_kind["curator_df.cli"], profiles, of_kind["kernels"]]
    assert len(alone) <= 100


def test_a_module_that_one_other_imports_is_found() -> None:
    tree = ast.parse("def late():\n    from curator_df.core.columns import is_text")
    once = {PACKAGE / "core" / "columns.py": ast.parse(""), PACKAGE / "cli.py": tree}
    assert only_importers(once) == {"curator_df.core.columns": "curator_df.cli"}
    assert only_importers({**once, PACKAGE / "demo.py": tree}) == {}


def test_map_partitions_is_called_in_one_place(trees: dict[Path, ast.Module]) -> None:
    callers = [
        name_of(path)
        for path, tree in trees.items()
        if any(isinstance(node, ast.Attribute) and node.attr == "map_partitions" for node in ast.walk(tree))
    ]
    assert callers == ["core/ranges/blocks.py"]


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        ("core", "from curator_df.io import listing"),
        ("core", "from curator_df import io"),
        ("core", "def late():\n    import curator_df.ops.filters.where"),
        ("core", "import curator_df"),
        ("ops", "from curator_df import keep_where"),
        ("core", "from . import columns"),
        ("kernels", "import dask.dataframe as dd"),
        ("errors", "from curator_df.memory.sizes import show_size"),
    ],
)
def test_what_is_forbidden_is_found(layer: str, source: str) -> None:
    assert broken_rules(layer, ast.parse(source))


def test_what_is_allowed_is_not_found() -> None:
    source = "import pandas\nfrom curator_df import errors\nfrom curator_df.core.ranges.blocks import map_blocks"
    assert not broken_rules("ops", ast.parse(source))


def test_an_import_from_a_later_folder_of_core_is_found() -> None:
    late = "from curator_df.core.runner.session import Session\n"
    assert broken_within_core("planning", ast.parse(late)) == ["runner.session.Session"]
    assert broken_within_core("runner", ast.parse(late)) == []
    assert broken_within_core("planning", ast.parse(f"def call():\n    {late}")) == []
    assert broken_within_core("planning", ast.parse(f"if TYPE_CHECKING:\n    {late}")) == []


def test_the_top_level_holds_what_a_newcomer_expects() -> None:
    """Runs from this folder leave others there, such as those of jobs, which must not be committed."""
    tracked = subprocess.run(["git", "ls-files"], cwd=PACKAGE.parent, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("by nature: this copy is not a git repository")
    found = {name.partition("/")[0] for name in tracked.stdout.splitlines()}
    assert {name for name in found if not name.startswith(".")} <= TOP_LEVEL
