# SPDX-License-Identifier: Apache-2.0
"""Imports go one way: a module imports only from its own layer and those above it in `LAYERS`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "curator_df"
LAYERS = (
    "errors",
    "core",
    "kernels",
    "io",
    "ops",
    "profiles",
    "models",
    "cluster",
    "monitor",
    "demo_corpus",
    "__init__",
    "cli",
)
CORE_GROUPS = ("", "memory", "files", "ranges", "exchange", "planning", "tasks", "receipts", "runner", "duplicates")
"""Folders of ``core/``: a module imports, when it is imported itself, only from its own folder and those before it."""
KEPT_OUT = {
    "core": {"torch", "transformers", "numba", "ftfy", "cudf", "rmm", "cupy"},
    "kernels": {"dask", "distributed", "fsspec", "torch", "transformers"},
    "io": {"torch", "transformers", "numba", "ftfy"},
    "ops": {"torch", "transformers"},
    "profiles": {"dask", "distributed", "pandas", "numpy", "numba", "torch"},
}
"""Packages that a layer must do without, because of what the layer is."""

MODULES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_in(source: str) -> Iterator[str]:
    """Yield the dotted names that a module imports, inside functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)


def broken_rules(layer: str, source: str) -> list[str]:
    allowed = {*LAYERS[: LAYERS.index(layer) + 1]}
    broken = []
    for name in imports_in(source):
        package, _, rest = name.partition(".")
        part = rest.partition(".")[0]
        if package == "curator_df":
            wanted = part if part in LAYERS else "__init__"
            broken += [] if wanted in allowed else [f"{name} is in {wanted}, below {layer}"]
        elif package in KEPT_OUT.get(layer, set()) or not package:
            broken.append(f"{name} has no place in {layer}")
    return broken


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_is_in_a_layer(path: Path) -> None:
    assert layer_of(path) in LAYERS


@pytest.mark.parametrize("path", [path for path in MODULES if layer_of(path) in LAYERS], ids=name_of)
def test_imports_go_one_way(path: Path) -> None:
    if layer_of(path) == "core" and path.name == "backend.py":
        assert not [rule for rule in broken_rules("core", path.read_text()) if "cudf" not in rule]
    else:
        assert not broken_rules(layer_of(path), path.read_text())


def group_of(name: str) -> str:
    """Return the folder of ``core/`` that a dotted name below ``curator_df.core`` is in."""
    first = name.split(".", maxsplit=1)[0]
    return first if first in CORE_GROUPS else ""


@pytest.mark.parametrize("path", sorted((PACKAGE / "core").rglob("*.py")), ids=name_of)
def test_imports_within_core_go_one_way(path: Path) -> None:
    own = path.relative_to(PACKAGE / "core").parent.as_posix()
    allowed = CORE_GROUPS[: CORE_GROUPS.index("" if own == "." else own) + 1]
    at_the_top = ast.Module([node for node in ast.parse(path.read_text()).body if not isinstance(node, ast.If)], [])
    imported = [
        name
        for name in imports_in(
            ast.unparse(
                ast.Module([node for node in at_the_top.body if isinstance(node, ast.Import | ast.ImportFrom)], [])
            )
        )
        if name.startswith("curator_df.core.")
    ]
    assert not [name for name in imported if group_of(name.removeprefix("curator_df.core.")) not in allowed]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_map_partitions_is_called_in_one_place(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)]
    if name_of(path) != "core/ranges/blocks.py":
        assert "map_partitions" not in {node.attr for node in calls}


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        ("core", "from curator_df.io import listing"),
        ("core", "from curator_df import io"),
        ("core", "def late():\n    import curator_df.ops.where"),
        ("core", "import curator_df"),
        ("ops", "from curator_df import keep_where"),
        ("core", "from . import columns"),
        ("kernels", "import dask.dataframe as dd"),
        ("errors", "from curator_df.core.sizes import show_size"),
    ],
)
def test_what_is_forbidden_is_found(layer: str, source: str) -> None:
    assert broken_rules(layer, source)


def test_what_is_allowed_is_not_found() -> None:
    source = "import pandas\nfrom curator_df import errors\nfrom curator_df.core.ranges.blocks import map_blocks"
    assert not broken_rules("ops", source)
