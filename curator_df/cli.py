# SPDX-License-Identifier: Apache-2.0
"""``curator-df``: the public functions on the command line."""

from __future__ import annotations

import io
import multiprocessing
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import curator_df as cdf
from curator_df.demo_corpus import write_demo_corpus
from curator_df.errors import (
    BadRowError,
    BudgetError,
    ColumnError,
    CuratorError,
    ExpressionError,
    OutputExistsError,
    OutputInUseError,
    OversizeRowError,
    ParameterError,
    ResumeError,
    SchemaError,
    UnsupportedBackendError,
)
from curator_df.io.kinds import holds_parquet
from curator_df.monitor import stack
from curator_df.monitor.targets import LOOPBACK, default_directory
from curator_df.ops.near_duplicates import VERIFY

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Curate text for training language models, under a memory budget.",
    pretty_exceptions_enable=False,
)
monitor_app = typer.Typer(no_args_is_help=True, help="Watch runs with Prometheus and Grafana.")
app.add_typer(monitor_app, name="monitor")
_PUBLISHED = [getattr(cdf.profiles, name) for name in cdf.profiles.__all__ if name.isupper()]
PROFILES = {profile.name: profile for profile in _PUBLISHED}
DEFAULT_PROFILE = cdf.profiles.DATATROVE_GOPHER_QUALITY.name
SCHEMES = {name.lower(): found for name, found in vars(cdf.minhash).items() if isinstance(found, cdf.minhash.Scheme)}
DEMO_MEMORY = "1GB"
PERMANENT = (
    BadRowError,
    BudgetError,
    ColumnError,
    ExpressionError,
    OutputExistsError,
    OversizeRowError,
    ParameterError,
    ResumeError,
    SchemaError,
    UnsupportedBackendError,
)
"""Errors that the same command meets on every attempt."""
PERMANENT_EXIT = 2
"""Their exit code, which is also that of a wrong option."""
OPTIONS = (
    "bands_per_iteration cpus device_memory keep memory normalize on_bad_rows on_existing on_text partition_on port"
)
OPTIONS += " rejects sample_size scheme text verify workdir"
"""Arguments of Python that are options here."""
_ARGUMENT = re.compile(rf"(?<![\w-])({OPTIONS.replace(' ', '|')})=('[^']*'|\"[^\"]*\"|[\w.]*)")

Input = Annotated[
    str,
    typer.Argument(metavar="INPUT", help="A file, a folder or a glob of JSONL (.gz, .zst) or Parquet files, or a URL."),
]
Memory = Annotated[
    str | None, typer.Option(help="Bytes allowed for all processes together, like 4GB. [60 % of the machine]")
]
Cpus = Annotated[int | None, typer.Option(help="Threads that work at a time. [all]")]
Text = Annotated[str, typer.Option(help="Name of the text column.")]
ProfileName = Annotated[str, typer.Option("--profile", help=f"Rules to keep by: {', '.join(PROFILES)}, or none.")]
Metrics = Annotated[
    bool, typer.Option("--metrics", help="Serve metrics meanwhile; `curator-df monitor up` shows them.")
]
OnBadRows = Annotated[str, typer.Option(help="error, or quarantine: set unreadable rows aside beside the output.")]


@app.command()
def curate(
    source: Input,
    output: Annotated[str, typer.Argument(help="Folder (or URL) for the curated files.")],
    memory: Memory = None,
    cpus: Cpus = None,
    text: Text = "text",
    profile: ProfileName = DEFAULT_PROFILE,
    file_format: Annotated[str, typer.Option("--format", help="parquet or jsonl.")] = "parquet",
    rejects: Annotated[str | None, typer.Option(help="Folder for the dropped rows, with reasons.")] = None,
    partition_on: Annotated[str | None, typer.Option(help="Column whose values become folders.")] = None,
    on_bad_rows: OnBadRows = "error",
    on_existing: Annotated[str, typer.Option(help="error, resume or overwrite.")] = "error",
    metrics: Metrics = False,
) -> None:
    """Normalise Unicode, keep what passes a profile, and write what is left."""
    if file_format not in ("parquet", "jsonl"):
        raise ParameterError(f"--format {file_format!r} is not one of 'parquet', 'jsonl'")
    docs = _chain(source, text, profile, on_bad_rows)
    write: Any = cdf.write_parquet if file_format == "parquet" else cdf.write_jsonl
    with cdf.start_cluster(memory=memory, cpus=cpus) as cluster, _served(cluster, metrics):
        Console(stderr=True).print(repr(cluster), highlight=False)
        receipt = write(docs, output, rejects=rejects, partition_on=partition_on, on_existing=on_existing)
    Console().print(receipt)


@app.command()
def explain(
    source: Input,
    memory: Memory = None,
    cpus: Cpus = None,
    text: Text = "text",
    profile: ProfileName = DEFAULT_PROFILE,
) -> None:
    """Show what `curate` would do with this input, and the memory it would need. Reads only the heads of the files."""
    Console().print(cdf.explain(_chain(source, text, profile, "error"), memory=memory, cpus=cpus))


@app.command()
def recommend(
    source: Input,
    memory: Memory = None,
    cpus: Cpus = None,
    text: Text = "text",
    workdir: Annotated[str | None, typer.Option(help="Folder whose free space counts. [here]")] = None,
    model: Annotated[str | None, typer.Option(help="A model whose batches are to fit.")] = None,
    device_memory: Annotated[str | None, typer.Option(help="Memory of a GPU, for such batches.")] = None,
    sample_size: Annotated[str, typer.Option(help="Text that is run to tell the time; 0: none.")] = "32MB",
) -> None:
    """Say what to set for a deduplication of this input: workers, blocks, bands, disk, time, and what part would fit."""
    asked = {"memory": memory, "device_memory": device_memory, "cpus": cpus, "model": model, "workdir": workdir}
    sample = None if sample_size == "0" else sample_size
    Console().print(cdf.recommend(source, text=text, sample_size=sample, **asked))  # type: ignore[arg-type]


@app.command()
def dedup(
    source: Input,
    output: Annotated[str, typer.Argument(help="Folder (or URL) for the files without duplicates.")],
    exact: Annotated[
        bool, typer.Option("--exact", help="Drop only rows with exactly the same text. [near duplicates too]")
    ] = False,
    memory: Memory = None,
    cpus: Cpus = None,
    text: Text = "text",
    normalize: Annotated[
        str | None, typer.Option(help="With --exact; case_and_spaces: compare without case and extra spaces.")
    ] = None,
    keep: Annotated[str, typer.Option(help="first, last or longest.")] = "first",
    on_text: Annotated[
        str | None,
        typer.Option(help="With --exact; lines or paragraphs: take repeated ones out of the texts, not rows."),
    ] = None,
    scheme: Annotated[str | None, typer.Option(help=f"Shingles and bands: {', '.join(SCHEMES)}. [nemo]")] = None,
    verify: Annotated[
        float | None, typer.Option(help="Least Jaccard similarity; 0: join all that share a band. [0.8]")
    ] = None,
    bands_per_iteration: Annotated[int | None, typer.Option(help="Bands compared at a time. [from the budget]")] = None,
    rejects: Annotated[str | None, typer.Option(help="Folder for the dropped rows, with reasons.")] = None,
    on_bad_rows: OnBadRows = "error",
    on_existing: Annotated[str, typer.Option(help="error, resume or overwrite.")] = "error",
    metrics: Metrics = False,
) -> None:
    """Keep one of all rows with nearly the same text (or the same: --exact), and write what is left to Parquet."""
    docs = _read(source, on_bad_rows)
    policy: dict[str, Any] = {"text": text, "keep": keep}
    near = {"--scheme": scheme, "--verify": verify, "--bands-per-iteration": bands_per_iteration}
    if exact and (given := [name for name, value in near.items() if value is not None]):
        raise ParameterError(f"{' and '.join(given)} cannot be used with --exact, which compares whole texts")
    scheme, least = scheme or "nemo", VERIFY if verify is None else verify
    if exact:
        docs = cdf.drop_exact_duplicates(docs, normalize=normalize, on_text=on_text, **policy)  # type: ignore[arg-type]
    elif normalize is not None or on_text is not None:
        raise ParameterError("--normalize and --on-text go with --exact")
    elif scheme not in SCHEMES:
        raise ParameterError(f"--scheme {scheme!r} is not one of {', '.join(map(repr, SCHEMES))}")
    else:
        policy |= {"scheme": SCHEMES[scheme], "verify": least or None, "bands_per_iteration": bands_per_iteration}
        docs = cdf.drop_near_duplicates(docs, **policy)
    with cdf.start_cluster(memory=memory, cpus=cpus) as cluster, _served(cluster, metrics):
        Console(stderr=True).print(repr(cluster), highlight=False)
        receipt = cdf.write_parquet(docs, output, rejects=rejects, on_existing=on_existing)  # type: ignore[arg-type]
    Console().print(receipt)


@app.command()
def demo(
    output: Annotated[
        Path | None, typer.Argument(help="Folder to work in. [a new one in the temporary directory]")
    ] = None,
    memory: Memory = DEMO_MEMORY,
    cpus: Cpus = None,
) -> None:
    """Curate real text that is on this machine: documentation, docstrings and licences of installed packages."""
    folder = Path(tempfile.mkdtemp(prefix="curator-df-demo-")) if output is None else output
    console = Console()
    console.print("gathering text that is on this machine (half a minute at most)...")
    # In a process of its own: what gathering leaves in memory would count against the budget.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as apart:
        corpus = apart.submit(write_demo_corpus, folder / "corpus").result()
    console.print(
        f"corpus: {corpus.documents:,} documents, {corpus.text_bytes / 1e6:.0f} MB of text in {folder / 'corpus'}"
    )
    if not corpus.is_enough:
        console.print(
            "too little text on this machine for the demo (it wants 20 MB and 2,000 documents)", style="bold red"
        )
        raise typer.Exit(1)
    docs = _chain(str(folder / "corpus"), "text", DEFAULT_PROFILE, "error")
    with cdf.start_cluster(memory=memory, cpus=cpus) as cluster:
        console.print(repr(cluster), highlight=False)
        console.print(cdf.explain(docs))
        receipt = cdf.write_parquet(docs, folder / "clean", rejects=folder / "rejects", on_existing="overwrite")
    console.print(receipt)
    console.print(
        f"\nThe curated text is in {folder / 'clean'}, what was dropped and why in {folder / 'rejects'}. Look at it:\n"
        f"    python -c \"import pandas; print(pandas.read_parquet('{folder / 'clean'}').head())\"",
        soft_wrap=True,
    )


@monitor_app.command()
def up(
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help=f"Folder for configuration and measurements. [{default_directory()}]"),
    ] = None,
    port: Annotated[int, typer.Option(help="Port of Prometheus.")] = 9090,
    grafana_port: Annotated[int, typer.Option(help="Port of Grafana.")] = 3000,
    address: Annotated[
        str,
        typer.Option(help="Address to listen at; others than this machine's loopback can be reached from elsewhere."),
    ] = LOOPBACK,
    write_only: Annotated[bool, typer.Option("--write-only", help="Write the files, and start nothing.")] = False,
) -> None:
    """Watch runs: write what Prometheus and Grafana need, and start them where they are installed. Ctrl-C ends them."""
    console = Console()
    folder = (default_directory() if directory is None else directory).absolute()
    watched = stack.Stack(folder, address, port, grafana_port)
    for path in stack.write_stack(watched):
        console.print(f"written     {path}", soft_wrap=True, highlight=False)
    if write_only:
        return
    prometheus, grafana = stack.prometheus_command(watched), stack.grafana_command(watched)
    for command, missing in ((prometheus, stack.PROMETHEUS_MISSING), (grafana, stack.GRAFANA_MISSING)):
        if command is None:
            console.print(missing, style="yellow", soft_wrap=True, highlight=False)
    if prometheus is None:
        raise typer.Exit(1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that both servers are ended
    with suppress(KeyboardInterrupt), stack.running_servers(watched) as servers:
        console.print(f"prometheus  {watched.prometheus_url}/alerts", soft_wrap=True, highlight=False)
        if grafana is not None:
            console.print(f"grafana     {stack.dashboard_url(watched)}", soft_wrap=True, highlight=False)
        given = "" if directory is None else f"directory={str(folder)!r}"
        console.print(f"runs are seen inside `with cdf.serve_metrics({given})`", soft_wrap=True, highlight=False)
        stack.wait_for_end(servers)


@contextmanager
def _served(cluster: Any, metrics: bool) -> Iterator[None]:
    if not metrics:
        yield
        return
    with cdf.serve_metrics(cluster) as served:
        Console(stderr=True).print(repr(served), highlight=False, soft_wrap=True)
        yield


def _chain(source: str, text: str, profile: str, on_bad_rows: Any) -> Any:
    docs = _read(source, on_bad_rows)
    docs = cdf.normalize_unicode(docs, text=text)
    if profile == "none":
        return docs
    if profile not in PROFILES:
        raise ParameterError(f"--profile {profile!r} is not one of {', '.join(map(repr, PROFILES))}, 'none'")
    return cdf.keep_profile(docs, PROFILES[profile], text=text)


def _read(source: str, on_bad_rows: Any) -> Any:
    read = cdf.read_parquet if holds_parquet(source) else cdf.read_jsonl
    return read(source, on_bad_rows=on_bad_rows)


def _with_options(message: str) -> str:
    """Return a message with options of the command line in the place of arguments of Python.

    Examples
    --------
    >>> _with_options("Go on with on_existing='resume', or allow about memory=2_000_000_000")
    'Go on with --on-existing resume, or allow about --memory 2_000_000_000'
    """

    def option(found: re.Match[str]) -> str:
        value = found[2].strip("'\"")
        return f"--{found[1].replace('_', '-')}" + (f" {value}" if value else "")

    return _ARGUMENT.sub(option, message)


def main() -> None:
    """Run the command line; an error of ours is one message, without a traceback."""
    for stream in (
        sys.stdout,
        sys.stderr,
    ):  # receipts and names of files have characters that the terminal may not have
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except CuratorError as exc:
        Console(stderr=True).print(
            f"{type(exc).__name__}: {_with_options(str(exc))}",
            style="red",
            highlight=False,
            soft_wrap=True,
            markup=False,
        )
        is_permanent = isinstance(exc, PERMANENT) and not isinstance(exc, OutputInUseError)
        sys.exit(PERMANENT_EXIT if is_permanent else 1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
