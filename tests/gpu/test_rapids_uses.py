# SPDX-License-Identifier: Apache-2.0
"""Every use of RAPIDS and of numba's CUDA in the code is on a list, and what is on the list exists in the packages installed.

The first needs none of them. What the list cannot say (what a function returns, which error it raises) is in
``test_rapids_contract.py``.
"""

import importlib
import inspect
import re
from pathlib import Path

import pytest

from tests.gpu.rapids_uses import GIVEN, PACKAGES, uses_in

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [*sorted((ROOT / "curator_df").rglob("*.py")), *sorted((ROOT / "benchmarks").glob("gpu*.py"))]
USES = {
    "cudf.DataFrame().assign": "**",
    "cudf.DataFrame().columns": "",
    "cudf.DataFrame().copy": "deep",
    "cudf.DataFrame().copy().eval": "",
    "cudf.DataFrame().copy().eval().to_numpy": "dtype na_value",
    "cudf.DataFrame().copy().eval().to_numpy().all": "",
    "cudf.DataFrame().index": "",
    "cudf.DataFrame().index.name": "",
    "cudf.DataFrame().index.to_numpy": "",
    "cudf.DataFrame().to_arrow": "preserve_index",
    "cudf.DataFrame.from_arrow": "",
    "cudf.DataFrame.from_arrow().index": "",
    "cudf.Index": "name",
    "cudf.Series": "dtype index",
    "cudf.Series()._column": "",
    "cudf.Series()._column.access": "mode scope",
    "cudf.Series()._column.plc_column": "",
    "cudf.Series().drop_duplicates": "keep",
    "cudf.Series().dtype": "",
    "cudf.Series().fillna": "",
    "cudf.Series().fillna().astype": "",
    "cudf.Series().fillna().astype().values": "",
    "cudf.Series().fillna().sum": "",
    "cudf.Series().fillna().to_numpy": "dtype",
    "cudf.Series().index": "",
    "cudf.Series().isna": "",
    "cudf.Series().isna().to_numpy": "dtype",
    "cudf.Series().notna": "",
    "cudf.Series().notna().values": "",
    "cudf.Series().null_count": "",
    "cudf.Series().str": "",
    "cudf.Series().str.len": "",
    "cudf.Series().str.len().fillna": "",
    "cudf.Series().str.len().fillna().to_numpy": "dtype",
    "cudf.Series().str.lower": "",
    "cudf.Series().str.lower().str.split": "",
    "cudf.Series().str.lower().str.split().str": "",
    "cudf.Series().str.token_count": "",
    "cudf.Series().take": "",
    "cudf.Series().take().index": "",
    "cudf.Series().to_frame": "",
    "cudf.Series().to_frame().hash_values": "",
    "cudf.Series().where": "",
    "cudf.core.buffer.Buffer().ptr": "",
    "cudf.core.buffer.spill_manager": "",
    "cudf.core.buffer.spill_manager.get_global_manager": "",
    "cudf.core.buffer.spill_manager.get_global_manager().buffers": "",
    "cudf.core.buffer.spill_manager.get_global_manager().buffers()[].is_spilled": "",
    "cudf.core.buffer.spill_manager.get_global_manager().buffers()[].size": "",
    "cudf.core.buffer.spill_manager.get_global_manager().statistics.spill_totals": "",
    "cudf.core.buffer.spill_manager.get_global_manager().statistics.spill_totals.get": "",
    "cudf.get_option": "",
    "cudf.read_parquet": "columns",
    "cudf.read_parquet()[].copy": "deep",
    "cuml.cluster.KMeans": "**",
    "cuml.cluster.KMeans().fit": "",
    "cuml.cluster.KMeans().fit().cluster_centers_": "",
    "dask_cuda.LocalCUDACluster": (
        "** CUDA_VISIBLE_DEVICES config dashboard_address host local_directory memory_limit "
        "n_workers preload scheduler_kwargs silence_logs threads_per_worker"
    ),
    "dask_cudf.read_json": "blocksize lines",
    "dask_cudf.read_json()[].drop_duplicates": "subset",
    "dask_cudf.read_json()[].drop_duplicates().to_parquet": "write_index",
    "dask_cudf.read_parquet": "columns",
    "dask_cudf.read_parquet().pipe": "",
    "numba.cuda.as_cuda_array": "",
    "numba.cuda.atomic.add": "",
    "numba.cuda.blockDim.x": "",
    "numba.cuda.blockIdx.x": "",
    "numba.cuda.device_array": "",
    "numba.cuda.get_current_device": "",
    "numba.cuda.get_current_device().name": "",
    "numba.cuda.grid": "",
    "numba.cuda.gridDim.x": "",
    "numba.cuda.gridsize": "",
    "numba.cuda.jit": "device",
    "numba.cuda.local.array": "",
    "numba.cuda.shared.array": "",
    "numba.cuda.synchronize": "",
    "numba.cuda.syncthreads": "",
    "numba.cuda.threadIdx.x": "",
    "numba.cuda.to_device": "",
    "pylibcudf.Column().child": "",
    "pylibcudf.Column().child().data": "",
    "pylibcudf.Column().child().offset": "",
    "pylibcudf.Column().child().type": "",
    "pylibcudf.Column().child().type().id": "",
    "pylibcudf.Column().child().type().id().name": "",
    "pylibcudf.Column().data": "",
    "pylibcudf.Column().data().size": "",
    "pylibcudf.Column().offset": "",
    "pylibcudf.Column().size": "",
    "rmm.DeviceBuffer": "size",
    "rmm.DeviceBuffer().ptr": "",
    "rmm.mr.get_current_device_resource": "",
    "rmm.mr.get_current_device_resource().get_allocation_limit": "",
    "rmm.mr.get_current_device_resource().get_upstream": "",
    "rmm.statistics.enable_statistics": "",
}
"""Paths as `uses_in` has them, and the keywords of their calls."""
BUILT_NAMES = {f"cudf.Series().str.{name}" for name in ("minhash", "minhash64", "minhash_ngrams", "minhash64_ngrams")}
"""Names that ``benchmarks/gpu.py`` puts together, so that no scan finds them."""
KINDS = {
    "cudf.DataFrame": "cudf.DataFrame.copy() cudf.DataFrame.from_arrow() cudf.Series.to_frame() cudf.read_parquet()",
    "cudf.Index": "cudf.DataFrame.index cudf.Series.index",
    "cudf.Series": (
        "cudf.DataFrame.eval() cudf.DataFrame[] cudf.Series.astype() cudf.Series.fillna() cudf.Series.isna() cudf.Series.notna() "
        "cudf.Series.take() cudf.core.accessors.string.StringMethods.len() "
        "cudf.core.accessors.string.StringMethods.lower() cudf.core.accessors.string.StringMethods.split()"
    ),
    "cudf.core.accessors.string.StringMethods": "cudf.Series.str",
    "cudf.core.buffer.spillable_buffer.SpillableBufferOwner": "cudf.core.buffer.spill_manager.SpillManager.buffers()[]",
    "cudf.core.buffer.spill_manager.SpillManager": "cudf.core.buffer.spill_manager.get_global_manager()",
    "cudf.core.buffer.spill_manager.SpillStatistics": "cudf.core.buffer.spill_manager.SpillManager.statistics",
    "cudf.core.column.ColumnBase": "cudf.Series._column",
    "builtins.dict": "cudf.core.buffer.spill_manager.SpillStatistics.spill_totals",
    "cuml.cluster.KMeans": "cuml.cluster.KMeans.fit()",
    "dask_cudf.DataFrame": (
        "dask_cudf.DataFrame.drop_duplicates() dask_cudf.DataFrame[] dask_cudf.read_json() dask_cudf.read_parquet()"
    ),
    "numba.cuda.cudadrv.driver.Device": "numba.cuda.get_current_device()",
    "numpy.ndarray": "cudf.Series.to_numpy()",
    "pandas.DataFrame": "pyarrow.Table.to_pandas()",
    "pyarrow.Table": "cudf.DataFrame.to_arrow()",
    "pylibcudf.Column": "cudf.core.column.ColumnBase.plc_column pylibcudf.Column.child()",
    "pylibcudf.DataType": "pylibcudf.Column.type()",
    "pylibcudf.TypeId": "pylibcudf.DataType.id()",
    "pylibcudf.gpumemoryview": "pylibcudf.Column.data()",
    "rmm.mr.LimitingResourceAdaptor": "rmm.mr.get_current_device_resource()",
    "rmm.statistics.Statistics": "rmm.statistics.get_statistics()",
}
"""What calls, elements and properties are, where the list goes on behind them."""
KIND_OF = {one: kind for kind, several in KINDS.items() for one in several.split()}
PASSED_ON = {
    "cudf.core.column.ColumnBase.access": ("cudf.core.buffer.SpillableBuffer.access",),
    "dask_cuda.LocalCUDACluster": ("distributed.LocalCluster", "distributed.Nanny"),
    "dask_cudf.DataFrame.to_parquet": ("dask.dataframe.dask_expr.io.parquet.to_parquet",),
    "dask_cudf.read_json": ("dask_cudf.io.json.read_json",),
    "dask_cudf.read_parquet": ("dask.dataframe.dask_expr.read_parquet",),
}
"""Who takes the keywords that a function takes as ``**kwargs``."""


def test_the_code_uses_what_is_on_the_list_and_nothing_else():
    found = {}
    for path in SOURCES:
        name = path.relative_to(ROOT).as_posix()
        for used, keywords in uses_in(path.read_text(), GIVEN.get(name)).items():
            found.setdefault(used, set()).update(keywords)
    listed = {path: set(keywords.split()) for path, keywords in USES.items()}
    assert {path: listed[path] for path in listed if found.get(path) != listed[path]} == {}, "no longer used so"
    assert {path: found[path] for path in found if listed.get(path) != found[path]} == {}, "add what is used to USES"
    assert set(GIVEN) <= {path.relative_to(ROOT).as_posix() for path in SOURCES}


def test_paths_are_followed_through_names_calls_and_modules_that_are_looked_up():
    source = """
import importlib, sys
import rmm.statistics
from numba import cuda as gpu
from cudf import DataFrame as Frame

class Counts:
    def __init__(self):
        self._counted, self.cudf = rmm.statistics, 5
    def ask(self):
        return self._counted.get_statistics(deep=True).peak_bytes

def moved(cudf, table, given):
    cudf.Series(table)  # of an argument: nothing is known of it
    frame: Frame = Frame.from_arrow(table, **{})
    frame.index = given.where(gpu.grid(1))
    names = [column.name for column in frame.columns()]
    cluster = importlib.import_module("dask_cuda") if names else None
    cluster.Cluster(n=frame[0].isna())
    frame = len(frame)
    frame.bit_count()
    return sys.modules.get("rmm")
"""
    assert uses_in(source, {"given": "cudf.Series()"}) == {
        "cudf.DataFrame": set(),
        "cudf.DataFrame.from_arrow": {"**"},
        "cudf.DataFrame.from_arrow().columns": set(),
        "cudf.DataFrame.from_arrow().columns()[].name": set(),
        "cudf.DataFrame.from_arrow().index": set(),
        "cudf.DataFrame.from_arrow()[].isna": set(),
        "cudf.Series().where": set(),
        "dask_cuda.Cluster": {"n"},
        "numba.cuda.grid": set(),
        "rmm.statistics": set(),
        "rmm.statistics.get_statistics": {"deep"},
        "rmm.statistics.get_statistics().peak_bytes": set(),
    }


@pytest.mark.proof  # cuDF and cuML take half a minute to import on a loaded machine
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("package", PACKAGES)
def test_what_is_on_the_list_exists_with_its_keywords(package):
    pytest.importorskip(package, reason=f"needs the gpu extra ({package})")
    listed = {path: keywords for path, keywords in USES.items() if path.startswith(f"{package}.")}
    listed |= {path: "" for path in BUILT_NAMES if path.startswith(f"{package}.")}
    for path, keywords in listed.items():
        name, found = located(path)
        missing = {word for word in keywords.split() if word != "**" and not takes(name, found, word)}
        assert not missing, f"{path} has no {missing}"


def located(path):
    """Return the path of what a path leads to, through the kinds of what is called on the way, and the thing itself."""
    name, found = "", None
    for part in re.findall(r"\w+|\(\)|\[\]", path):
        if part in ("()", "[]"):
            name += part
            if name not in KIND_OF and part == "()" and inspect.isclass(found):
                name = name[:-2]
        else:
            assert not name or (found is not None and name[-1] not in ")]"), f"say in KINDS what {name} is"
            found = member(name, found, part)
            name = f"{name}.{part}".lstrip(".")
        if name in KIND_OF:
            name = KIND_OF[name]
            module, _, last = name.rpartition(".")
            found = getattr(importlib.import_module(module), last)
    return name, found


def member(name, found, part):
    """Return an attribute; None of one that objects of a class get when they are made."""
    if not name:
        return importlib.import_module(part)
    if hasattr(found, part):
        return getattr(found, part)
    if inspect.ismodule(found):
        return importlib.import_module(f"{name}.{part}")
    stated = {one for kind in found.__mro__ for one in (*getattr(kind, "__annotations__", ()), *vars(kind))}
    assert part in stated or f"self.{part} " in inspect.getsource(found.__init__), f"{name} has no {part}"
    return None


def takes(name, found, word):
    """Tell whether a function takes a keyword, or one does that it passes its keywords to."""
    made = (found.__init__, found.__new__) if inspect.isclass(found) else (found,)
    parameters = [one for function in made for one in inspect.signature(function).parameters.values()]
    if word in {one.name for one in parameters}:
        return True
    if {one.name for one in parameters} <= {"self", "cls", "args", "kwargs"} and name not in PASSED_ON:
        # What is compiled, as rmm's classes are, says in its docstring alone what it takes.
        return bool(re.search(rf"^ +{word} : ", found.__doc__ or "", flags=re.MULTILINE))
    return any(takes(*located(other), word) for other in PASSED_ON.get(name, ()))
