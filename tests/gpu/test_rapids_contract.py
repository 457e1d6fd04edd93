# SPDX-License-Identifier: Apache-2.0
"""What the code uses of RAPIDS does what it counts on. Needs the gpu extra, and no GPU.

Every name and keyword that the code uses is on the list of ``test_rapids_uses.py``; here is what a list cannot say.
"""

import inspect

import pyarrow as pa
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


def test_the_worker_of_dask_cuda_has_the_options_that_jobs_start_it_with(tmp_path):
    cli = pytest.importorskip("dask_cuda.cli", reason="needs the gpu extra (dask-cuda)")
    from curator_df.cluster.batch import request_jobs

    named = {option for parameter in cli.worker.params for option in parameter.opts}
    asked = {"memory": "4GB", "cpus": 2, "jobs": 1, "walltime": "01:00:00", "gpus": 1, "device_memory": "10GB"}
    rest = dict.fromkeys(("spill_directory", "python", "queue", "account", "interface"))
    request = request_jobs("slurm", **asked, **rest, job_directory=tmp_path, directives=(), prologue=())
    given = [option for option in request.arguments()["worker_extra_args"] if option.startswith("--")]
    ours = {
        "--name",
        "--nthreads",
        "--memory-limit",
        "--death-timeout",
        "--local-directory",
        "--interface",
    }  # dask-jobqueue's
    security = {"--tls-ca-file", "--tls-cert", "--tls-key"}
    assert {*given, *ours, *security} <= named
    assert request.arguments()["worker_command"] == cli.__name__
    assert "--lifetime" not in named


@pytest.mark.filterwarnings("default")
def test_rmm_tells_its_limit_through_the_adaptors_around_it(tmp_path):
    rmm = pytest.importorskip("rmm", reason="needs the gpu extra (rmm)")

    assert hasattr(rmm.mr.LimitingResourceAdaptor, "get_allocation_limit")
    assert hasattr(rmm.mr.StatisticsResourceAdaptor, "get_upstream")
    assert not hasattr(rmm.mr.CudaAsyncMemoryResource, "get_upstream")
    assert callable(rmm.mr.get_current_device_resource)
    host_file = pytest.importorskip("dask_cuda.device_host_file", reason="needs the gpu extra (dask-cuda)")
    folder = str(tmp_path)
    assert not hasattr(host_file.DeviceHostFile(folder).device_buffer, "fast")
    assert hasattr(host_file.DeviceHostFile(folder, device_memory_limit=1_000).device_buffer, "fast")


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
def test_blocks_go_to_cudf_and_back_by_functions_that_it_has():
    cudf = pytest.importorskip("cudf", reason="needs the gpu extra (cudf-cu12)")
    frame = cudf.DataFrame

    assert parameters_of(frame.from_arrow) == {"table"}
    assert "preserve_index" in parameters_of(frame.to_arrow)
    assert {"data", "name"} <= parameters_of(cudf.Index.__new__) | parameters_of(cudf.Index.__init__)
    assert frame.index.fset is not None
    assert "index" in parameters_of(frame.memory_usage)
    assert {"assign", "iloc", "eval", "columns", "dtypes"} <= set(dir(frame))
    assert {"to_numpy", "isin", "name"} <= set(dir(cudf.Index))
    assert "indices" in parameters_of(cudf.Series.take)
    assert {"fillna", "isna", "astype", "values", "str"} <= set(dir(cudf.Series))
    assert "len" in dir(cudf.core.accessors.string.StringMethods)
    assert {"fillna", "sum", "take", "index"} <= set(dir(cudf.Series))
    assert {"data", "index", "dtype"} <= parameters_of(cudf.Series.__init__)


@pytest.mark.proof
@pytest.mark.filterwarnings("default")
def test_cudf_takes_an_arrow_table_as_far_as_the_driver():
    """Without a GPU the real `from_arrow` gets to where memory is asked for: what it raises there is of the driver."""
    pytest.importorskip("cudf", reason="needs the gpu extra (cudf-cu12)")
    import pandas as pd

    from curator_df.core.host_blocks import block_dtype
    from curator_df.io.device_transfer import _is_movable, device_block
    from curator_df.memory.gpus import read_gpus

    if read_gpus():
        pytest.skip("by nature: there is a GPU, and the tests of real blocks run")
    kinds = ["large_string", "bool", "int8", "uint64", "double", "timestamp[us]", "duration[ns]"]
    types = [pa.type_for_alias(kind) for kind in kinds]
    assert all(map(_is_movable, types))
    assert not any(map(_is_movable, (pa.date32(), pa.list_(pa.string()), pa.binary(), pa.timestamp("us", "UTC"))))
    block = pd.DataFrame(
        {kind: pd.array([None], dtype=block_dtype(type_)) for kind, type_ in zip(kinds, types, strict=True)}
    )
    with pytest.raises(Exception, match=r"(?i)cuda|driver"):
        device_block(block)


@pytest.mark.proof
@pytest.mark.filterwarnings("default")
def test_rmm_counts_what_it_hands_out():
    statistics = pytest.importorskip("rmm.statistics", reason="needs the gpu extra (cudf-cu12)")

    for function in (statistics.enable_statistics, statistics.push_statistics, statistics.get_statistics):
        assert parameters_of(function) == set()
    assert "peak_bytes" in statistics.Statistics.__annotations__


@pytest.mark.proof
@pytest.mark.filterwarnings("default")
def test_cudf_counts_what_it_moves_to_the_host():
    spilling = pytest.importorskip("cudf.core.buffer.spill_manager", reason="needs the gpu extra (cudf-cu12)")

    assert parameters_of(spilling.get_global_manager) == set()
    counted = spilling.SpillStatistics(1)  # as workers are started with
    counted.log_spill(src="gpu", dst="cpu", nbytes=70, time=0.5)
    counted.log_spill(src="gpu", dst="cpu", nbytes=30, time=0.5)
    assert counted.spill_totals["gpu", "cpu"] == (100, 1.0)
    assert "statistics" in inspect.getsource(spilling.SpillManager.__init__)


@pytest.mark.proof
@pytest.mark.filterwarnings("default")
def test_memory_that_a_gpu_does_not_have_is_known_by_its_error():
    rmm = pytest.importorskip("rmm", reason="needs the gpu extra (cudf-cu12)")
    driver = pytest.importorskip("numba.cuda.cudadrv.driver", reason="needs numba's CUDA target")
    from curator_df.core.ranges.out_of_memory import is_out_of_memory

    assert rmm.__version__
    assert is_out_of_memory(driver.CudaAPIError(2, "Call to cuModuleLoadDataEx results in CUDA_ERROR_OUT_OF_MEMORY"))
    assert not is_out_of_memory(driver.CudaAPIError(1, "Call to cuInit results in CUDA_ERROR_INVALID_VALUE"))


@pytest.mark.proof
@pytest.mark.filterwarnings("default")
def test_dasks_moves_are_known_by_their_names():
    expressions = pytest.importorskip("dask_cudf._expr.expr", reason="needs the gpu extra (dask-cudf-cu12)")
    from dask.dataframe.dask_expr._backends import ToPandasBackend

    from curator_df.core.planning.dask_steps import MOVES

    assert {expressions.ToCudfBackend.__name__, ToPandasBackend.__name__} <= set(MOVES)


@pytest.mark.proof  # cuML takes twelve seconds to import
@pytest.mark.filterwarnings("default")
def test_cumls_k_means_takes_what_it_is_made_with_and_goes_as_far_as_the_driver():
    """It is imported and made without a GPU; what `fit` raises there is of the driver."""
    cluster = pytest.importorskip("cuml.cluster", reason="needs the gpu extra (cuml-cu12)")
    import numpy as np

    from curator_df.dedup.vectors.settings import FIT_DEVICE_ROWS
    from curator_df.memory.gpus import read_gpus
    from curator_df.models.embeddings.k_means import cuml_arguments, fit_centroids_on_gpu

    made = inspect.signature(cluster.KMeans.__init__).parameters
    for rows in (100, 5_000):
        assert set(cuml_arguments(rows, 3, 42)) <= set(made)
    assert made["max_samples_per_batch"].default == FIT_DEVICE_ROWS
    assert "X" in parameters_of(cluster.KMeans.fit)
    assert "cluster_centers_" in dir(cluster.KMeans)
    if read_gpus():
        pytest.skip("by nature: there is a GPU, and test_cumls_clusters_are_about_those_of_scikit_learn runs")
    with pytest.raises(Exception, match=r"(?i)cuda|driver"):
        fit_centroids_on_gpu(np.random.default_rng(0).random((100, 4), dtype=np.float32), 2, 42)


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")
def test_cumls_clusters_are_about_those_of_scikit_learn():
    pytest.importorskip("cuml.cluster", reason="needs the gpu extra (cuml-cu12)")
    pytest.importorskip("sklearn", reason="needs the models extra (scikit-learn is not installed)")
    import numpy as np

    from curator_df.memory.gpus import read_gpus
    from curator_df.models.embeddings.k_means import fit_centroids, fit_centroids_on_gpu

    if not read_gpus():
        pytest.skip("needs an NVIDIA GPU")
    chance = np.random.default_rng(0)
    corners = np.eye(8, dtype=np.float32)[chance.integers(0, 8, 2_000)]
    sample = corners + chance.normal(scale=0.01, size=corners.shape).astype(np.float32)
    ours, theirs = (fit(sample, 8, 42) for fit in (fit_centroids, fit_centroids_on_gpu))
    assert theirs.dtype == np.float64
    np.testing.assert_allclose(np.sort(theirs @ ours.T, axis=1)[:, -1], 1, atol=0.01)
