# SPDX-License-Identifier: Apache-2.0
"""Datasets of the Hugging Face hub as outputs of `write_parquet` and `write_jsonl`.

A run writes to a local folder with its journal, and `push_to_hub` publishes that folder. Then the files are deleted, and the
journal, the receipt and a note of the commit stay: a repeated call finds the dataset complete.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from curator_df.arguments import choose
from curator_df.core.planning.branches import Branch, fork, identity_of
from curator_df.core.planning.device_steps import for_sink
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.plan import plan_fork
from curator_df.core.ranges.journal import Journal, OnExisting
from curator_df.core.receipts.receipt import Receipt
from curator_df.core.runner.explaining import PlanKnown, is_explaining
from curator_df.core.runner.session import current_session
from curator_df.errors import OutputExistsError, ParameterError
from curator_df.extras import require_package
from curator_df.files.hub import PROTOCOL
from curator_df.files.storage import JOURNAL_FOLDER, Folder
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import folder_at
from curator_df.io.output.push_to_hub import prepare_dataset, push_to_hub
from curator_df.io.output.receipts import read_receipt
from curator_df.memory.sizes import show_count, show_size

Path = str | os.PathLike[str]
SPLIT = "train"
"""Split that a folder becomes."""
PUBLISHED = f"{JOURNAL_FOLDER}/published.json"
"""Note of the dataset and its files, next to the journal, once the commit was made."""
_DATASET = re.compile(r"hf://datasets/([\w.-]+/[\w.-]+?)(?:@([^/\0]+))?/?")


@dataclass(frozen=True)
class Dataset:
    """Dataset of the hub that a run writes."""

    repo: str
    """Name of the dataset, with its organization."""
    revision: str
    """Branch that is written."""
    folder: Folder
    """Local folder of the files until they are published."""

    @property
    def url(self) -> str:
        """Address of the branch."""
        return f"{PROTOCOL}datasets/{self.repo}" + (f"@{self.revision}" if self.revision != "main" else "")


def dataset_at(operator: str, path: Path, workdir: Path | None, card: bool | None) -> Dataset | None:
    """Return the dataset that a path names; None for a path that is not on the hub.

    Raises
    ------
    ParameterError
        If the address is not that of a whole dataset, ``card`` is given without one, or ``workdir`` is not a local folder.
    MissingExtraError
        If the package huggingface_hub is not installed.
    """
    if not isinstance(card, bool | None):
        raise ParameterError(f"{operator}: card={card!r} must be True or False")
    name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(name, str) or not name.startswith(PROTOCOL):
        if card is not None:
            raise ParameterError(
                f"{operator}: card={card} needs a dataset of the hub as output, such as 'hf://datasets/organization/name'; "
                f"{path!r} is a folder. Leave card= out"
            )
        return None
    found = _DATASET.fullmatch(name)
    if found is None:
        raise ParameterError(
            f"{operator}: {name!r} cannot be written to. Name a whole dataset, such as 'hf://datasets/organization/name' or "
            "'hf://datasets/organization/name@branch': the files become its split 'train'. For other splits, write to "
            "folders, and publish them with push_to_hub"
        )
    require_package(operator, "huggingface_hub", "hub")
    home = folder_at("." if workdir is None else workdir, None)
    if not home.is_local:
        raise ParameterError(
            f"{operator}: workdir={os.fspath(workdir or '')!r} is not a local folder, but the files of a dataset wait there "
            "until they are published. Use a folder of a local or shared disk"
        )
    revision = (found[2] or "main").replace("%2F", "/").replace("%2f", "/")
    branch = "" if revision == "main" else f"@{revision.replace('/', '-')}"
    return Dataset(found[1], revision, home.below(f"hub-{found[1].replace('/', '-')}{branch}"))


def write_dataset(
    df: Any,
    dataset: Dataset,
    sink: FileSink,
    rejects: FileSink | None,
    write: Callable[..., Receipt],
    *,
    card: bool,
    on_existing: OnExisting,
    storage_options: Mapping[str, Any] | None,
) -> Receipt:
    """Run a chain into the folder of a dataset, and publish it.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The chain.
    dataset : Dataset
        Dataset and its folder.
    sink, rejects : FileSink
        Sink of the rows in this folder, and of the dropped rows if they are written.
    write : callable
        Function that runs the chain into the folder, given ``on_existing``.
    card : bool
        Whether the dataset card is written.
    on_existing : {"raise", "resume", "overwrite"}
        What to do if the dataset has files of the split, or the folder those of an earlier run.
    storage_options : mapping, optional
        ``token`` and ``endpoint`` of the hub.

    Returns
    -------
    Receipt
        Receipt of the run, with the address of the commit in its settings (``published``).

    Raises
    ------
    OutputExistsError
        If the dataset has other files of the split. Nothing was run, unless they were added during the run.
    ResumeError
        If the folder holds another run.
    """
    choose("write", "on_existing", on_existing, OnExisting)
    if is_explaining():
        _explain(dataset, write, on_existing)
    options, session = dict(storage_options or {}), current_session()
    session.require_ready()
    branch = Branch(for_sink(lower(df, spools=True)), sink, rejects)
    plan_fork(fork([branch]), session.weigh_client())  # before a dataset is created for a run that does not fit
    there = prepare_dataset(dataset.repo, dataset.revision, [SPLIT], options)
    note = _note(dataset.folder)
    if note is not None and on_existing == "resume" and there == note["files"]:
        with Journal(dataset.folder) as journal:
            journal.resume(identity_of(branch))
        return _tidied(dataset.folder, sink)
    is_begun = on_existing == "resume" and note is None and Journal(dataset.folder).is_started
    if there and on_existing != "overwrite" and not is_begun:
        raise OutputExistsError(
            f"the dataset {dataset.url} has {show_count(len(there), 'file')} of the split {SPLIT!r}, such as "
            f"{next(iter(there))!r}. Replace them with on_existing='overwrite', or write to another dataset or branch"
        )
    if note is not None and on_existing == "resume":  # the files have left the dataset since, and are written again
        dataset.folder.delete(PUBLISHED)
    write(on_existing=on_existing)
    url = push_to_hub(
        dataset.folder.root,
        dataset.repo,
        revision=dataset.revision,
        card=card,
        on_existing="overwrite" if on_existing == "overwrite" else "resume",
        storage_options=options,
    )
    receipt = read_receipt(dataset.folder.url)
    with Journal(dataset.folder) as journal:
        journal.finish(dataclasses.replace(receipt, settings={**receipt.settings, "published": url}).to_json())
    files = prepare_dataset(dataset.repo, dataset.revision, [SPLIT], options)
    dataset.folder.write(PUBLISHED, json.dumps({"files": files}, indent=1).encode())
    return _tidied(dataset.folder, sink)


def _explain(dataset: Dataset, write: Callable[..., Receipt], on_existing: OnExisting) -> None:
    """Stop with the plan of the run, and say what follows it."""
    try:
        write(on_existing=on_existing)
    except PlanKnown as known:
        free = dataset.folder.free_bytes()
        room = "" if free is None else f" ({show_size(free)} free)"
        said = f"the files are written to {dataset.folder.url}{room}, sent to {dataset.url}, and then deleted"
        plan = dataclasses.replace(known.plan, remarks=(*known.plan.remarks, ("dataset", said)))
        raise PlanKnown(plan, known.programs) from None


def _note(folder: Folder) -> dict[str, Any] | None:
    """Return the note of the published files; None if they were not published."""
    return json.loads(folder.read(PUBLISHED)) if folder.exists(PUBLISHED) else None


def _tidied(folder: Folder, sink: FileSink) -> Receipt:
    """Delete the files that were published; return the receipt, which stays."""
    published = [name for name in folder.names() if sink.owns(name) is not None and not name.startswith("_")]
    folder.delete_all(published)
    return read_receipt(folder.url)
