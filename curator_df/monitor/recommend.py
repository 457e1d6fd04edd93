# SPDX-License-Identifier: Apache-2.0
"""Recommend settings for an input from its sizes and a sample, with the plans of `explain` and the exchanges."""

from __future__ import annotations

import dataclasses
import functools
import html
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from curator_df.arguments import path_of
from curator_df.core.columns import require_text
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.plan import Plan, plan_stream
from curator_df.core.planning.row_estimate import estimate_rows
from curator_df.core.ranges.blocks import BlockKernel, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.core.runner.explaining import note_time
from curator_df.core.runner.run import range_bytes
from curator_df.dedup.near.settings import default_bands_per_iteration
from curator_df.dedup.near.stages import project_bands
from curator_df.errors import BudgetError
from curator_df.files.storage import Folder
from curator_df.io.jsonl.reader import read_jsonl
from curator_df.io.kinds import holds_parquet
from curator_df.io.listing import Paths
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import TARGET_FILE_BYTES, ParquetFormat
from curator_df.io.parquet.reader import read_parquet
from curator_df.memory.budget import Layout, choose_layout, parse_memory
from curator_df.memory.sizes import read_size, show_count, show_duration, show_size
from curator_df.models.embeddings.embedding import ROW_BYTES, add_embedding_block
from curator_df.models.files import ModelFiles
from curator_df.models.model import Model
from curator_df.models.text_model import CHARACTERS_PER_TOKEN, DEFAULT_BATCH_TOKENS, TextModel, text_model
from curator_df.monitor.sample_run import COPY_EVERY, SampleTime, measure_sample
from curator_df.ops.cleaning.normalization import normalize_unicode
from curator_df.ops.duplicates.near_duplicates import drop_near_duplicates
from curator_df.ops.duplicates.near_scheme import MANY_ROWS
from curator_df.profiles.minhash import DEFAULT
from curator_df.suggestions import suggests_names

MINILM = ModelFiles(
    name="sentence-transformers/all-MiniLM-L6-v2",
    folder="",
    revision=None,
    digest="",
    kind="bert",
    hidden=384,
    inner=1536,
    heads=12,
    longest=512,
    parameters=22_713_216,
    weight_bytes=90_868_376,
    classes=(),
    several_classes=False,
)
"""Model for which batches are recommended by default: the figures of its config.json and its weights, so that nothing is
downloaded."""


@dataclass(frozen=True)
class Batches:
    """Padded tokens per batch that fit, with reasons."""

    tokens: int | None = None
    """Tokens per batch of each task on the CPU; 0 if not even one text fits, None if no model was given."""
    device_tokens: int | None = None
    """Tokens per batch on a GPU; 0 if not even one text fits, None if no GPU was given."""
    reasons: tuple[tuple[str, str], ...] = ()
    """Name and reason of each choice."""


def recommend_batches(
    named: str | os.PathLike[str] | Model | None,
    device_bytes: int | None,
    plan: Callable[[Callable[[Any], Any]], object],
) -> Batches:
    """Choose the batches of a model, or of MiniLM if only a GPU is given; nothing if neither is given.

    Parameters
    ----------
    named : str, path or Model, optional
        A model, as for `add_embedding`.
    device_bytes : int, optional
        Memory of a GPU.
    plan : callable
        Function that plans a step, itself a function from a lazy table to a lazy table; raises `BudgetError` if it does not fit.
    """
    if named is None and device_bytes is None:
        return Batches()
    model = _default_model() if named is None else text_model("recommend", _of_files(named), head="mean")
    tokens, said = _host_tokens(model, plan)
    reasons = [("model", f"{model.files.name}: {said}")]
    if device_bytes is None:
        return Batches(tokens, None, tuple(reasons))
    on_device = model.fitting_tokens(device_bytes - model.weight_bytes)
    said = f"{show_size(device_bytes)} of GPU memory are too little for the weights and one text of {model.max_tokens:,} tokens"
    if on_device:
        said = f"{show_size(device_bytes)} of GPU memory fit the weights and batches of {on_device:,} padded tokens, "
        said += f"{on_device // model.max_tokens:,} texts of {model.max_tokens:,}"
    reasons.append(("device", f"{said}; computed, not measured on a GPU"))
    return Batches(tokens, on_device, tuple(reasons))


def _default_model() -> TextModel:
    longest = MINILM.longest
    return TextModel(MINILM, "mean", longest, CHARACTERS_PER_TOKEN * longest, DEFAULT_BATCH_TOKENS, None)


def _of_files(named: Any) -> Model:
    """Return a model with its settings, without a GPU: both places are planned."""
    chosen = Model.of(named)
    return chosen.replace(model=path_of("recommend", "model", chosen.model), resources=None)


def _host_tokens(model: TextModel, plan: Callable[[Callable[[Any], Any]], object]) -> tuple[int, str]:
    """Return the largest batch, up to the default, for which the plan of the model's step fits."""
    tokens = model.batch_tokens
    while True:
        try:
            plan(functools.partial(_with_model, model=dataclasses.replace(model, batch_tokens=tokens)))
        except BudgetError as exc:
            if tokens <= model.max_tokens:
                return 0, f"the model does not fit, even with batches of one text ({exc})"
            tokens = max(tokens // 2, model.max_tokens)
            continue
        why = "the largest that fits"
        if tokens == model.batch_tokens:
            why = "the default" if tokens == DEFAULT_BATCH_TOKENS else "the number that you set"
        return tokens, f"max_batch_tokens={tokens:_} per task: {why}"


def _with_model(docs: Any, model: TextModel) -> Any:
    """Return the table with a step that costs the same as `add_embedding`; it is planned and never run."""
    factor = round(1.0 + 4 * model.files.hidden / ROW_BYTES, 1)
    kernel = BlockKernel(
        "model", add_embedding_block, {}, price=Price(factor, held_bytes=model.held_bytes, fixed_bytes=model.call_bytes)
    )
    return map_blocks(docs, kernel, meta=docs._meta)


STEP_OF_FRACTION = 0.01
"""Granularity of recommended fractions."""


@suggests_names
@dataclass(frozen=True)
class Recommendation:
    """Recommended settings for an input, with reasons.

    See Also
    --------
    recommend, explain
    """

    rows: int
    """Estimated rows of the input."""
    text_bytes: int
    """Estimated decompressed bytes of the input."""
    memory_bytes: int
    """``memory`` of `start_cluster`."""
    cpus: int
    """``cpus`` of `start_cluster`."""
    workers: int
    """Resulting number of worker processes; 0 means threads of the client."""
    threads: int
    """Threads per worker process."""
    block_bytes: int
    """``blocksize`` of a reader."""
    bands_per_iteration: int
    """Parameter of `drop_near_duplicates`."""
    use_64_bit_hash: bool
    """Whether the default scheme of `drop_near_duplicates` has 64-bit hashes for this number of rows."""
    projected_bytes: int
    """Estimated peak memory of all processes, in bytes."""
    disk_bytes: int
    """Bytes of temporary files of `drop_near_duplicates`; the output is not included."""
    sample_fraction: float
    """``fraction`` of `sample_rows` for which the temporary files fit; 1.0 if the whole input fits, 0.0 if no part does."""
    projected_seconds: float | None
    """Estimated run time, from a sample; None if none was run."""
    batch_tokens: int | None
    """``max_batch_tokens`` of a model operator; 0 if not even one text fits, None if no model was given."""
    device_batch_tokens: int | None
    """``max_batch_tokens`` on a GPU with ``device_memory``; None if no GPU was given."""
    reasons: tuple[tuple[str, str], ...]
    """Name and reason of each setting, in the order in which they are shown."""

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each figure: ``name``, ``value``.

        Returns
        -------
        pandas.DataFrame
            Shape (15, 2).
        """
        return pd.DataFrame(
            [(name, value) for name, value in vars(self).items() if name != "reasons"], columns=["name", "value"]
        )

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain values; ``reasons`` is a list of pairs.

        Returns
        -------
        dict
            Values that `json.dumps` takes.
        """
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        return "\n".join(f"{name:<10} {value}" for name, value in self.reasons)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{name}</th><td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in self.reasons
        )
        return f"<table>{rows}</table>"


def recommend(
    paths: Paths,
    *,
    memory: str | int | None = None,
    device_memory: str | int | None = None,
    cpus: int | None = None,
    model: str | os.PathLike[str] | Model | None = None,
    text: str = "text",
    workdir: str | os.PathLike[str] | None = None,
    sample_size: str | int | None = "32MB",
    storage_options: Mapping[str, Any] | None = None,
) -> Recommendation:
    """Recommend settings for cleaning an input and dropping its near duplicates.

    Parameters
    ----------
    paths : str, path or sequence of these
        JSONL or Parquet files, as for `read_jsonl` and `read_parquet`.
    memory : str or int, optional
        Memory budget; defaults to 60% of the machine's memory.
    device_memory : str or int, optional
        Memory of a GPU, for the batches of a model on it.
    cpus : int, optional
        CPUs to use; defaults to all.
    model : str, path or Model, optional
        A model, as for `add_embedding`, whose batches are to fit. With ``device_memory`` alone, the batches are those
        of all-MiniLM-L6-v2, of which nothing is read then.
    text : str
        Name of the text column.
    workdir : str or path, optional
        Folder for temporary files, whose free space counts; defaults to the working directory.
    sample_size : str or int, optional
        Text to actually clean, compare and write, in order to estimate the time; None runs nothing.
    storage_options : dict, optional
        fsspec options.

    Returns
    -------
    Recommendation
        Recommended settings for an input, with reasons: memory, workers, block size, bands, hash, disk, time, batches of a
        model, and the part of it that fits. Its fields are the arguments to pass; ``sample_fraction`` is the part of
        the input for which there is disk space. It displays itself with the reasons.

    Raises
    ------
    BudgetError
        If ``memory`` is below the minimum; the message states what would fit.
    InputError
        If no file matches, or the model does not exist.
    OperatorError
        If the run of the sample fails.

    See Also
    --------
    explain, start_cluster

    Notes
    -----
    Rows: none. Peak extra memory: 3 x ``sample_size`` here, and in separate processes ``memory``, but at least 1 GB and
    at most 1 GB and 500 MB for each thread. Computes: yes, the first blocks of up to 8 input splits, and a run of that sample
    in a fresh process. See ``docs/memory.md#before-a-run``.

    The plan is that of ``normalize_unicode`` and ``drop_near_duplicates`` with its default bands, written to Parquet;
    for another chain use `explain`.

    The time is an estimate. It is the time per byte that a thread took for the sample, while as many other threads ran
    as have 2 MB of the sample each, scaled to all bytes and divided by the threads that have an input split, plus
    the time to load libraries and kernels. It therefore refers to this machine at its current load, with files on a
    local disk. A sample has fewer duplicates than the whole input, so one row in ten gets a near duplicate; if the
    input has more, comparing them takes additional time.

    Examples
    --------
    >>> import curator_df as cdf
    >>> cdf.recommend("corpus/", memory="16GB").bands_per_iteration  # doctest: +SKIP
    5
    """
    is_parquet = holds_parquet(paths, storage_options)
    read = read_parquet if is_parquet else read_jsonl
    docs = read(paths, storage_options=storage_options)
    require_text(docs, "recommend", text)
    layout = choose_layout(parse_memory(memory), cpus=cpus)
    source = lower(docs).source
    ranges = source.cut(range_bytes(source))
    rows = estimate_rows(source, ranges)
    wide, num_bands = rows >= MANY_ROWS, DEFAULT.num_bands
    bands = default_bands_per_iteration(rows, num_bands, layout.exclusive_bytes)
    chain = functools.partial(_deduplicated, text=text, use_64_bit_hash=wide)
    plan = _plan(chain(docs), layout)
    folder = Folder(os.fspath(workdir) if workdir is not None else ".")
    disk_bytes, free_bytes = _disk_bytes(rows, num_bands, len(ranges), layout), folder.free_bytes()
    fraction = _fraction(rows, num_bands, len(ranges), layout, free_bytes)
    time = None
    if sample_size is not None:
        sample_bytes = read_size("sample_size", sample_size)
        time = measure_sample(
            source, ranges, chain, text=text, is_parquet=is_parquet, sample_bytes=sample_bytes, layout=layout
        )
    threads = layout.workers * layout.threads
    if time is not None:
        note_time(lower(chain(docs)), layout, time.seconds(source.text_bytes, len(ranges), threads))
    device_bytes = None if device_memory is None else read_size("device_memory", device_memory)
    batches = recommend_batches(model, device_bytes, lambda step: _plan(step(docs), layout))
    return Recommendation(
        rows=rows,
        text_bytes=source.text_bytes,
        memory_bytes=layout.allowed_bytes,
        cpus=layout.cpus,
        workers=0 if layout.in_process else layout.workers,
        threads=layout.threads,
        block_bytes=plan.stages[-1].block_bytes,
        bands_per_iteration=bands,
        use_64_bit_hash=wide,
        projected_bytes=plan.projected_bytes,
        disk_bytes=disk_bytes,
        sample_fraction=fraction,
        projected_seconds=None if time is None else time.seconds(source.text_bytes, len(ranges), threads),
        batch_tokens=batches.tokens,
        device_batch_tokens=batches.device_tokens,
        reasons=(
            (
                "input",
                f"{show_count(len(source.files), 'file')}, {show_size(source.input_bytes)}; {_amount(rows, source.text_bytes)}",
            ),
            ("memory", _memory_reason(plan)),
            ("layout", f"{layout.shape}: {layout.reason}"),
            ("blocksize", f"{show_size(plan.stages[-1].block_bytes)}: the largest that fits, 16 MB at most"),
            (
                "bands",
                f"bands_per_iteration={bands} of {num_bands}: their keys fit into the working memory",
            ),
            ("hash", _hash_reason(rows, wide)),
            ("disk", _disk_reason(disk_bytes, free_bytes, folder, fraction)),
            *_time_reason(time, source.text_bytes, len(ranges), threads),
            *batches.reasons,
        ),
    )


def _deduplicated(docs: Any, *, text: str, use_64_bit_hash: bool) -> Any:
    scheme = DEFAULT.replace(use_64_bit_hash=use_64_bit_hash)
    return drop_near_duplicates(normalize_unicode(docs, text=text), text=text, scheme=scheme)


def _plan(chain: Any, layout: Layout) -> Plan:
    return plan_stream(lower(chain), FileSink(Folder("."), ParquetFormat("zstd"), TARGET_FILE_BYTES), None, layout)


def _amount(rows: int, text_bytes: int) -> str:
    return f"about {show_count(rows, 'row')} and {show_size(text_bytes)} of text"


def _memory_reason(plan: Plan) -> str:
    allowed = show_size(plan.layout.allowed_bytes)
    return f"estimated peak {show_size(plan.projected_bytes)}, budget {allowed}; the peak does not grow with the input"


def _disk_bytes(rows: int, num_bands: int, map_files: int, layout: Layout) -> int:
    return project_bands(rows, num_bands, map_files, layout).need("drop_near_duplicates").needed_bytes


def _fraction(rows: int, num_bands: int, map_files: int, layout: Layout, free_bytes: int | None) -> float:
    """Return the largest share of the rows whose temporary files fit."""
    steps = round(1 / STEP_OF_FRACTION)
    for step in range(steps, 0, -1):
        needed = _disk_bytes(max(rows * step // steps, 1), num_bands, map_files, layout)
        if free_bytes is None or needed <= free_bytes:
            return step / steps
    return 0.0


def _hash_reason(rows: int, wide: bool) -> str:
    chosen = "64 bits" if wide else "32 bits"
    return f"{chosen}: about {show_count(rows, 'row')}, and from {MANY_ROWS:,} rows on, 32-bit hashes match texts that differ"


def _disk_reason(disk_bytes: int, free_bytes: int | None, folder: Folder, fraction: float) -> str:
    said = f"{show_size(disk_bytes)} of temporary files, plus the output"
    if free_bytes is None:
        return said
    said += f"; {show_size(free_bytes)} are free in {folder.url}"
    if fraction == 1.0:
        return said
    if fraction == 0.0:
        return f"{said}: not even 1% of the rows fits. Use another workdir="
    return f"{said}, enough for sample_rows(fraction={fraction}). Use that fraction or another workdir="


def _time_reason(time: SampleTime | None, text_bytes: int, ranges: int, threads: int) -> list[tuple[str, str]]:
    if time is None:
        return []
    said = f"about {show_duration(time.seconds(text_bytes, ranges, threads))}: {show_size(time.text_bytes)} took "
    said += f"{show_duration(time.run_seconds)} (threads: {time.threads}; usable threads: {min(ranges, threads)})"
    return [("time", f"{said}; assuming that one row in {COPY_EVERY} has a near duplicate")]
