# SPDX-License-Identifier: Apache-2.0
"""What the code uses of RAPIDS exists with the signature it counts on. Needs the gpu extra, and no GPU."""

import inspect

import pytest


def parameters_of(function):
    return set(inspect.signature(function).parameters)


def test_dask_cuda_takes_what_the_cluster_is_started_with():
    dask_cuda = pytest.importorskip("dask_cuda", reason="needs the gpu extra (dask-cuda)")
    from curator_df.cluster.cuda import gpu_arguments

    named = parameters_of(dask_cuda.LocalCUDACluster.__init__)
    from distributed import LocalCluster

    passed_on = parameters_of(LocalCluster.__init__) | {"preload"}  # a worker's, which LocalCluster passes on
    assert set(gpu_arguments(1_000_000_000)) <= named
    rest = {"local_directory", "host", "dashboard_address", "preload", "silence_logs", "security", "memory_limit"}
    assert rest <= named | passed_on


def test_dask_cuda_limits_an_asynchronous_allocator_with_the_maximum_pool_size():
    plugins = pytest.importorskip("dask_cuda.plugins", reason="needs the gpu extra (dask-cuda)")
    assert {"maximum_pool_size", "async_alloc"} <= parameters_of(plugins.RMMSetup.__init__)
    assert "LimitingResourceAdaptor" in inspect.getsource(plugins.RMMSetup.setup)


@pytest.mark.proof  # half a minute to import cuDF on a loaded machine
@pytest.mark.filterwarnings("default")
def test_cudf_has_the_options_and_the_kind_of_block_that_is_told_by_its_module():
    cudf = pytest.importorskip("cudf", reason="needs the gpu extra (cudf-cu12)")
    rmm = pytest.importorskip("rmm", reason="needs the gpu extra (cudf-cu12)")
    from curator_df.core.backend import backend_of

    assert isinstance(cudf.get_option("spill"), bool)
    assert isinstance(cudf.get_option("spill_stats"), int)
    assert cudf.get_option("spill_on_demand") is True
    blocks = [kind.__new__(kind) for kind in (cudf.DataFrame, cudf.Series)]
    assert {backend_of(block) for block in blocks} == {"cudf"}
    assert {"CudaAsyncMemoryResource", "LimitingResourceAdaptor"} <= set(dir(rmm.mr))


@pytest.mark.proof
@pytest.mark.filterwarnings("default")
def test_dask_cudf_registers_the_backend_that_tables_are_moved_to():
    pytest.importorskip("dask_cudf", reason="needs the gpu extra (dask-cudf-cu12)")
    from dask.dataframe.backends import dataframe_creation_dispatch

    assert type(dataframe_creation_dispatch.dispatch("cudf")).__module__.startswith("dask_cudf")


@pytest.mark.proof
@pytest.mark.filterwarnings("default")
def test_cudf_holds_strings_as_the_kernels_read_them():
    cudf = pytest.importorskip("cudf", reason="needs the gpu extra (cudf-cu12)")
    plc = pytest.importorskip("pylibcudf", reason="needs the gpu extra (cudf-cu12)")
    buffers = pytest.importorskip("cudf.core.buffer", reason="needs the gpu extra (cudf-cu12)")
    columns = pytest.importorskip("cudf.core.column", reason="needs the gpu extra (cudf-cu12)")

    assert {"child", "data", "offset", "size", "type"} <= set(dir(plc.Column))
    assert {kind.name for kind in (plc.TypeId.INT32, plc.TypeId.INT64)} == {"INT32", "INT64"}
    assert plc.DataType(plc.TypeId.INT64).id().name == "INT64"
    assert "plc_column" in columns.ColumnBase.__annotations__
    assert parameters_of(columns.ColumnBase.access) == {"self", "kwargs"}
    assert {"mode", "scope"} <= parameters_of(buffers.SpillableBuffer.access)
    assert {"ptr", "size"} <= set(dir(buffers.Buffer))
    assert {"notna", "null_count", "where", "values"} <= set(dir(cudf.Series))
    assert "index" in parameters_of(cudf.Series.__init__)


@pytest.mark.proof
@pytest.mark.filterwarnings("default")
def test_arrays_of_kernels_are_of_rmms_memory():
    rmm = pytest.importorskip("rmm", reason="needs the gpu extra (cudf-cu12)")
    cuda = pytest.importorskip("numba.cuda", reason="needs numba's CUDA target")

    assert {"ptr", "size"} <= set(dir(rmm.DeviceBuffer))
    assert "obj" in parameters_of(cuda.as_cuda_array)
