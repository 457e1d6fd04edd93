# SPDX-License-Identifier: Apache-2.0
"""The sources that the machine code of a kernel is made of, as one digest: the statements that its function reaches.

They are found in the text of the sources, so that a process need not import numba to know whether a kernel is compiled.
Comments, docstrings, annotations, layout and file times change nothing. Whatever a statement names is followed: other functions,
constants and the statements that fill them, modules of this package, data files in their folders, and what numba compiles in
place of a function (``@overload``).
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = Path(__file__).parents[2]
WHOLE_MODULE = "*"
"""Stands for every name of a module."""
NO_PART_OF_IT = {"kernels.compiling.kernel_cache", "kernels.compiling.compile_cache", "errors"}
"""Modules that a kernel reaches, and that change nothing of its machine code."""


@dataclass
class _Part:
    """The statements that define one name of a module."""

    text: str = ""
    names: set[str] = field(default_factory=set)


@functools.cache
def kernel_digest(kernel: str) -> str:
    """Return the digest of all that a kernel, named ``module.function``, is made of."""
    module, _, function = kernel.rpartition(".")
    texts = [f"{place} {text}" for place, text in sorted(reached(f"kernels.{module}", function).items()) if text]
    return hashlib.blake2b("\n".join(texts).encode(), digest_size=12).hexdigest()


def reached(module: str, name: str) -> dict[tuple[str, str], str]:
    """Return the text of the statements that a name of a module reaches, by module and name."""
    found: dict[tuple[str, str], str] = {}
    waiting = [(module, name)]
    while waiting:
        place = waiting.pop()
        if place in found or place[0] in NO_PART_OF_IT:
            continue
        parts, imports = _module(place[0])
        names = parts.keys() if place[1] == WHOLE_MODULE else {place[1]} & parts.keys()
        found[place] = "".join(parts[each].text for each in sorted(names))
        waiting += [imports[place[1]]] if place[1] in imports else []
        waiting += [(place[0], other) for each in names for other in parts[each].names]
    return found


@functools.cache
def _module(module: str) -> tuple[dict[str, _Part], dict[str, tuple[str, str]]]:
    """Return the parts of a module by the name that they define, and what it imports from this package."""
    path = _path(module)
    tree = _Plain().visit(ast.parse(path.read_text(encoding="utf-8")))
    parts: dict[str, _Part] = {}
    imports: dict[str, tuple[str, str]] = {}
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("curator_df."):
            imports.update(_imported(statement))
            continue
        names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        for node in ast.walk(statement):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("curator_df."):
                imports.update(_imported(node))
        text = ast.dump(statement) + "".join(_data_digests(statement, path.parent))
        for defined in set(_defined(statement)):
            part = parts.setdefault(defined, _Part())
            part.text += text
            part.names |= names - {defined}
    return parts, imports


class _Plain(ast.NodeTransformer):
    """Takes away what no machine code depends on: annotations of functions, and docstrings."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.returns = None
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            argument.annotation = None
        if len(node.body) > 1 and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
        return node


def _path(module: str) -> Path:
    path = PACKAGE / f"{module.replace('.', '/')}.py"
    return path if path.exists() else path.with_suffix("") / "__init__.py"


def _imported(statement: ast.ImportFrom) -> Iterator[tuple[str, tuple[str, str]]]:
    module = str(statement.module).removeprefix("curator_df.")
    for alias in statement.names:
        inner = f"{module}.{alias.name}"
        yield alias.asname or alias.name, ((inner, WHOLE_MODULE) if _path(inner).exists() else (module, alias.name))


def _data_digests(statement: ast.stmt, folder: Path) -> Iterator[str]:
    """Yield the digests of the data files of a module's folder that a statement names."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(".json"):
            path = folder / node.value
            if path.exists():
                yield hashlib.blake2b(path.read_bytes(), digest_size=12).hexdigest()


def _defined(statement: ast.stmt) -> Iterable[str]:
    """Return the names that a statement of a module defines or fills, or in place of which it is compiled."""
    if isinstance(statement, ast.FunctionDef):
        return [statement.name, *_overloaded(statement)]
    if isinstance(statement, ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).partition(".")[0] for alias in statement.names]
    return _stored(statement)


def _stored(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement assigns to, or whose parts it assigns to, or whose methods it calls."""
    nodes = list(ast.walk(statement))
    # Variables of comprehensions are not the module's.
    inner = {id(name) for node in nodes if isinstance(node, ast.comprehension) for name in ast.walk(node.target)}
    for node in nodes:
        if id(node) in inner:
            continue
        changed: ast.expr | None = None
        if isinstance(node, ast.Name | ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            changed = node
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            changed = node.value.func
        while isinstance(changed, ast.Subscript | ast.Attribute):
            changed = changed.value
        if isinstance(changed, ast.Name):
            yield changed.id


def _overloaded(function: ast.FunctionDef) -> Iterator[str]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name) and decorator.func.id == "overload":
            yield from (argument.id for argument in decorator.args if isinstance(argument, ast.Name))
