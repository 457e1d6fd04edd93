# SPDX-License-Identifier: Apache-2.0
"""The demo of the command line: curate text that is already on this machine, and show what became of it."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

import curator_df as cdf
from curator_df.cluster.beside_start import beside_start
from curator_df.core.runner.progress import Progress, progress_bar
from curator_df.demo_corpus import ENOUGH_BYTES, FILE_OF_KIND, DemoCorpus, kept_corpus, read_corpus
from curator_df.kernels.compiling.kernel_sets import EVERY_RUN, JSON_LINES, UNICODE
from curator_df.kernels.metrics.counts import WORDS

SHOWN_ROWS = 3
"""Number of rows of each kind that the demo shows."""
TOLD_SECONDS = 2.0
"""Seconds between two lines of progress where there is no terminal."""
MEGABYTE = 1_000_000


def run_demo(console: Console, output: Path | None, profile: str, memory: str, cpus: int | None) -> bool:
    """Run the demo, and tell whether this machine has enough text for it.

    Parameters
    ----------
    console : rich.console.Console
        Where to print.
    output : Path, optional
        Folder for the corpus and the results. By default, the results are deleted, and the corpus is kept for the next demo.
    profile : str
        Name of the profile to apply.
    memory, cpus : str and int
        As in `start_cluster`.
    """
    if output is not None:
        corpus = _copied(_collect(console, output / "corpus"), output / "corpus")
        return _curate(console, corpus, output, profile, memory, cpus)
    with tempfile.TemporaryDirectory(prefix="curator-df-demo-") as folder:
        return _curate(console, _collect(console, Path(folder, "corpus")), Path(folder), profile, memory, cpus)


def _collect(console: Console, otherwise: Path) -> DemoCorpus:
    """Return the text that this user keeps, collected if need be; collected into another folder where nothing can be kept."""

    def gather(folder: Path) -> None:
        console.print("Collecting text that is already on this machine, once...")
        with progress_bar("collecting text", ENOUGH_BYTES // MEGABYTE) as show:
            _gather(folder, _shown(console, show))

    corpus = kept_corpus(gather)
    if corpus is None:
        otherwise.mkdir(parents=True, exist_ok=True)
        gather(otherwise)
        corpus = read_corpus(otherwise)
    if corpus is None:
        raise FileNotFoundError(f"the text of the demo is no longer in {otherwise}. Run curator-df demo again")
    return corpus


def _shown(console: Console, show: Progress) -> Any:
    """Return a function that shows the documents and bytes collected so far: with a bar, or with a line now and then."""
    told = time.monotonic()

    def tell(documents: int, text_bytes: int) -> None:
        nonlocal told
        show(min(text_bytes, ENOUGH_BYTES) // MEGABYTE, f"MB, {documents:,} documents")
        if not sys.stderr.isatty() and time.monotonic() - told > TOLD_SECONDS:
            told = time.monotonic()
            console.print(f"{text_bytes / MEGABYTE:.0f} of {ENOUGH_BYTES // MEGABYTE} MB, {documents:,} documents")

    return tell


def _gather(folder: Path, tell: Any) -> None:
    """Collect text in a process of its own: the memory that this leaves behind would count against the budget.

    Meanwhile, this process imports what it needs to start a cluster.
    """
    program = (
        f"import sys; sys.path[:] = {sys.path!r}; from pathlib import Path; from curator_df.demo_corpus import write_for_demo\n"
        "try: write_for_demo(Path(sys.argv[1]))\n"
        "except OSError as exc: sys.exit(f'{exc.strerror}: {exc.filename}')"
    )
    command = [sys.executable, "-c", program, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            importing = threading.Thread(target=lambda: cdf.start_cluster, daemon=True)
            importing.start()
            for line in process.stdout or ():
                tell(*map(int, line.split()))
            said = "" if process.stderr is None else process.stderr.read()
            importing.join()
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        why = said.strip().splitlines()[-1]
        way = "Free some space, or name" if "space" in why else "Name"
        raise OSError(
            f"the text of the demo could not be collected: {why}. {way} another folder: curator-df demo FOLDER"
        )


def _copied(corpus: DemoCorpus, folder: Path) -> DemoCorpus:
    """Return a corpus in a folder of the user, copied from where it is kept."""
    if corpus.folder == folder:
        return corpus
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILE_OF_KIND.values():  # of an earlier demo
        (folder / name).unlink(missing_ok=True)
    shutil.copytree(corpus.folder, folder, dirs_exist_ok=True)
    return read_corpus(folder) or corpus


def _curate(console: Console, corpus: DemoCorpus, folder: Path, profile: str, memory: str, cpus: int | None) -> bool:
    console.print(
        f"Corpus: {corpus.documents:,} documents, {corpus.text_bytes / 1e6:.0f} MB of text in {corpus.folder}",
        soft_wrap=True,
    )
    if not corpus.is_enough:
        console.print(
            "This machine has too little text for the demo, which needs 20 MB and 2,000 documents.", style="bold red"
        )
        return False
    with _alive(console, "loading Dask and pandas"):
        from curator_df.cluster.compiling import compile_kernels
    with _alive(console, "compiling kernels", has_bar=True):
        # Before the cluster starts, with all CPUs: in its budget there may be memory for one compiler only.
        compile_kernels([*EVERY_RUN, *JSON_LINES, *UNICODE, *WORDS.kernels])
    console.print(f"Starting a cluster with a memory budget of {memory}...")
    with (
        _alive(console, "starting the cluster"),
        beside_start(lambda: _chain(corpus, profile), input_bytes=corpus.text_bytes) as docs,
    ):
        cluster = cdf.start_cluster(memory=memory, cpus=cpus)
    with cluster:
        console.print(repr(cluster))
        console.print(cdf.explain(docs()))
        with _alive(console, "curating", has_bar=True):
            receipt = cdf.write_parquet(docs(), folder / "clean", rejects=folder / "rejects", on_existing="overwrite")
    console.print(receipt)
    _show_rows(console, folder)
    return True


def _chain(corpus: DemoCorpus, profile: str) -> Any:
    docs = cdf.read_jsonl([str(path) for path in corpus.files]).pipe(cdf.normalize_unicode)
    # Words between white space need neither datatrove's tokenizer nor the seconds in which it is compiled.
    return docs.pipe(cdf.keep_profile, profile, words="whitespace")


@contextlib.contextmanager
def _alive(console: Console, activity: str, *, has_bar: bool = False) -> Iterator[None]:
    """Show that work goes on while the block runs: a spinner in a terminal, and elsewhere a line every `TOLD_SECONDS`.

    With ``has_bar``, the block shows a bar of its own in a terminal.
    """
    if sys.stderr.isatty():
        with contextlib.nullcontext() if has_bar else console.status(activity):
            yield
        return
    started, is_over = time.monotonic(), threading.Event()

    def tell() -> None:
        while not is_over.wait(TOLD_SECONDS):
            console.print(f"{activity}: {time.monotonic() - started:.0f} s")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        is_over.set()
        teller.join()


def _show_rows(console: Console, folder: Path) -> None:
    import pandas as pd

    from curator_df.receipts.rich_tables import table_of

    columns = ["reject_reason", "reject_value", "reject_threshold", "text"]
    for title, part, shown in (("kept", "clean", ["kind", "text"]), ("dropped", "rejects", columns)):
        rows = pd.read_parquet(folder / part, columns=shown).head(SHOWN_ROWS)
        console.print(
            f"\nSome of the rows that were {title}:",
            table_of(rows.assign(text=rows["text"].str.split().str.join(" ").str.slice(0, 60))),
        )
