# SPDX-License-Identifier: Apache-2.0
"""What Python source uses of RAPIDS and of numba's CUDA: dotted paths, and the keywords of calls. Imports none of them.

A path goes on behind a call: ``cudf.Series(values).take(places)`` uses ``cudf.Series`` and ``cudf.Series().take``. It is
followed through imports, ``sys.modules.get("rmm")``, ``importlib.import_module("dask_cuda")`` and assignments, and through
arguments of functions where they are `GIVEN`.
"""

import ast
from collections.abc import Iterable, Mapping

PACKAGES = ("cudf", "cuml", "cupy", "dask_cuda", "dask_cudf", "numba.cuda", "pylibcudf", "rmm")
GIVEN = {
    "curator_df/kernels/device/columns.py": {
        "texts": "cudf.Series()",
        "numbers": "cudf.Series()",
        "block": "cudf.DataFrame()",
        "column": "pylibcudf.Column()",
    },
    "curator_df/kernels/device/launch.py": {"span": "cudf.core.buffer.Buffer()", "buffer": "rmm.DeviceBuffer()"},
    "curator_df/core/host_blocks.py": {"block": "cudf.DataFrame()"},
    "curator_df/kernels/rows/either_backend.py": {
        "block": "cudf.DataFrame()",
        "meta": "cudf.DataFrame()",
        "texts": "cudf.Series()",
        "values": "cudf.Series()",
    },
    "curator_df/ops/filters/device_blocks.py": {
        "block": "cudf.DataFrame()",
        "meta": "cudf.DataFrame()",
        "texts": "cudf.Series()",
        "values": "cudf.Series()",
    },
    "curator_df/ops/filters/where.py": {"block": "cudf.DataFrame()", "result": "cudf.Series()"},
    "benchmarks/gpu.py": {"moved": "cudf.Series()", "read": "dask_cudf.read_parquet"},
    "benchmarks/gpu_end_to_end.py": {"read_json": "dask_cudf.read_json"},
}
"""Arguments that are objects of RAPIDS: what they are, by file and by name."""
MODULES_BY_NAME = ("importlib.import_module", "sys.modules.get")

Names = dict[str, str]
Uses = dict[str, set[str]]


def uses_in(source: str, given: Mapping[str, str] | None = None) -> Uses:
    """Return the paths that a module uses, each with the keywords that it is called with (``**`` for those of a mapping)."""
    found: Uses = {}
    _visit(ast.parse(source), {}, given or {}, found)
    within = tuple(f"{package}." for package in PACKAGES)
    return {path: keywords for path, keywords in found.items() if path.startswith(within) and path[-1] not in ")]"}


def path_of(node: ast.AST, names: Mapping[str, str]) -> str:
    """Return the path of an expression; empty if it is not known to be one of a module."""
    if (held := ast.unparse(node)) in names:
        return names[held]
    match node:
        case ast.Attribute(value=value, attr=name):
            return _behind(path_of(value, names), f".{name}")
        case ast.Subscript(value=value):
            return _behind(path_of(value, names), "[]")
        case ast.Call(func=function, args=[ast.Constant(value=str(module))]) if (
            ast.unparse(function) in MODULES_BY_NAME
        ):
            return module
        case ast.Call(func=function):
            return _behind(path_of(function, names), "()")
        case ast.IfExp(body=one, orelse=other):
            return path_of(one, names) or path_of(other, names)
    return ""


def _behind(path: str, more: str) -> str:
    return path and path + more


def _visit(node: ast.AST, names: Names, given: Mapping[str, str], found: Uses) -> None:
    match node:
        case ast.Import() | ast.ImportFrom():
            _import(node, names, found)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            arguments = {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
            inside = {name: path for name, path in names.items() if name not in arguments}
            inside |= {name: given[name] for name in arguments & set(given)}
            _visit_all(ast.iter_child_nodes(node), inside, given, found)
            names |= {name: path for name, path in inside.items() if name.startswith("self.")}
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            for target, value in zip(targets, values, strict=True):
                _assign(target, value, names, given, found)
        case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
            _assign(target, value, names, given, found)
        case ast.GeneratorExp() | ast.ListComp() | ast.SetComp() | ast.DictComp():
            inside = dict(names)
            for one in node.generators:
                inside[ast.unparse(one.target)] = _behind(path_of(one.iter, inside), "[]")
            _visit_all(ast.iter_child_nodes(node), inside, given, found)
        case ast.Attribute() | ast.Call() | ast.Subscript() | ast.Name() if path_of(node, names):
            found.setdefault(path_of(node, names), set())
            _visit_chain(node, names, given, found)
        case _:
            _visit_all(ast.iter_child_nodes(node), names, given, found)


def _visit_all(nodes: Iterable[ast.AST], names: Names, given: Mapping[str, str], found: Uses) -> None:
    for node in nodes:
        _visit(node, names, given, found)


def _visit_chain(node: ast.AST, names: Names, given: Mapping[str, str], found: Uses) -> None:
    """Take the calls of a chain of attributes and calls, from its end on, with their keywords and arguments."""
    while not isinstance(node, ast.Name):
        match node:
            case ast.Call(func=function, args=arguments, keywords=keywords):
                found.setdefault(path_of(function, names), set()).update(one.arg or "**" for one in keywords)
                _visit_all([*arguments, *(one.value for one in keywords)], names, given, found)
                node = function
            case ast.Subscript(value=value, slice=place):
                _visit(place, names, given, found)
                node = value
            case ast.Attribute(value=value):
                node = value
            case _:
                return


def _import(node: ast.Import | ast.ImportFrom, names: Names, found: Uses) -> None:
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            found.setdefault(f"{node.module}.{alias.name}", set())
        else:
            first = alias.name.partition(".")[0]
            names[alias.asname or first] = alias.name if alias.asname else first


def _assign(target: ast.expr, value: ast.expr, names: Names, given: Mapping[str, str], found: Uses) -> None:
    _visit(value, names, given, found)
    path = path_of(value, names)
    if not isinstance(target, ast.Name):
        _visit(target, names, given, found)
    if path:
        names[ast.unparse(target)] = path
    else:
        names.pop(ast.unparse(target), None)
