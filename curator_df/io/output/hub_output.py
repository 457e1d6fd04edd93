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
from curator_df.core.planning.branches import fork, identity_of
from curator_df.core.planning.first_steps import Reuse
from curator_df.core.planning.plan import plan_fork
from curator_df.core.ranges.journal import Journal, OnExisting
from curator_df.core.runner.explaining import PlanKnown, is_explaining
from curator_df.core.runner.prefix import require_storable
from curator_df.core.runner.run import check_folders, checked_branches, run
from curator_df.core.runner.session import current_session
from curator_df.core.tasks.task import OnError, OnOom
from curator_df.errors import OutputExistsError, ParameterError
from curator_df.extras import require_package
from curator_df.files.hub import PROTOCOL
from curator_df.files.storage import JOURNAL_FOLDER, Folder
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import folder_at
from curator_df.io.output.push_to_hub import prepare_dataset, published_files, push_to_hub
from curator_df.io.output.receipts import read_receipt
from curator_df.memory.sizes import show_count, show_size
from curator_df.receipts.receipt import Receipt

Path = str | os.PathLike[str]
SPLIT = "train"
"""Split that a folder becomes."""
PUBLISHED = f"{JOURNAL_FOLDER}/published.json"
"""Note of the dataset and its files, next to the journal, once the commit was made."""
REPLACES = ".replaces.json"
"""Ending of the note of the dataset's files that an unfinished run replaces, next to its folder."""
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

    def replaced(self) -> dict[str, str]:
        """Return the digests of the files that an interrupted run was to replace, by name."""
        if not self.folder.exists(self._replaces):
            return {}
        noted: dict[str, str] = json.loads(self.folder.read(self._replaces))["files"]
        return noted

    def note_replaced(self, files: Mapping[str, str]) -> None:
        """Note the digests of the files that a run replaces; delete the note if there are none.

        The note is next to the folder, because a run with ``on_existing="overwrite"`` deletes the content of the folder.
        """
        if files:
            self.folder.write(self._replaces, json.dumps({"files": files}, indent=1).encode())
        elif self.folder.exists(self._replaces):
            self.folder.delete(self._replaces)

    @property
    def _replaces(self) -> str:
        return f"../{os.path.basename(self.folder.root)}{REPLACES}"


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
    *,
    rejects: FileSink | None,
    workdir: Folder | None,
    card: bool,
    on_existing: OnExisting,
    on_error: OnError,
    on_oom: OnOom,
    reuse: Reuse,
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
    workdir, on_error, on_oom, reuse
        Same arguments as for `run`.
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
    choose("write_parquet", "reuse", reuse, Reuse)
    policies: dict[str, Any] = {
        "workdir": workdir,
        "on_existing": on_existing,
        "on_error": on_error,
        "on_oom": on_oom,
    }
    options = dict(storage_options or {})
    if is_explaining():
        _explain(dataset, lambda: run(df, sink, rejects=rejects, reuse=reuse, **policies), on_existing, options)
    (branch,) = checked_branches([(df, sink, rejects)], **policies)
    require_storable(fork([branch]), reuse)
    plan_fork(fork([branch]), current_session().weigh_client())  # the dataset is created once nothing refuses the run
    there = published_files(dataset.repo, dataset.revision, [SPLIT], options)
    note = _note(dataset.folder)
    if note is not None and on_existing == "resume" and there == note["files"]:
        with Journal(dataset.folder) as journal:
            journal.resume(identity_of(branch))
        dataset.note_replaced({})
        return _tidied(dataset.folder, sink)
    replaced = _replaced(dataset, there, on_existing, is_published=note is not None)
    check_folders(branch, on_existing)
    prepare_dataset(dataset.repo, dataset.revision, options)
    if note is not None and on_existing == "resume":  # the files have left the dataset since, and are written again
        dataset.folder.delete(PUBLISHED)
    dataset.note_replaced(replaced)
    run(df, sink, rejects=rejects, reuse=reuse, **policies)
    url = push_to_hub(
        dataset.folder.root,
        dataset.repo,
        revision=dataset.revision,
        card=card,
        on_existing="overwrite" if replaced or on_existing == "overwrite" else "resume",
        storage_options=options,
    )
    dataset.note_replaced({})
    receipt = read_receipt(dataset.folder.url)
    with Journal(dataset.folder) as journal:
        journal.finish(dataclasses.replace(receipt, settings={**receipt.settings, "published": url}).to_json())
    files = published_files(dataset.repo, dataset.revision, [SPLIT], options)
    dataset.folder.write(PUBLISHED, json.dumps({"files": files}, indent=1).encode())
    return _tidied(dataset.folder, sink)


def _replaced(
    dataset: Dataset, there: dict[str, str], on_existing: OnExisting, *, is_published: bool
) -> dict[str, str]:
    """Return the files of the dataset that the run replaces; raise an error if others prevent it.

    A resumed run replaces those that the interrupted one was to replace, until they have left the dataset.
    """
    if on_existing == "overwrite":
        return there
    is_begun = on_existing == "resume" and not is_published and Journal(dataset.folder).is_started
    if there and not is_begun:
        raise OutputExistsError(
            f"the dataset {dataset.url} has {show_count(len(there), 'file')} of the split {SPLIT!r}, such as "
            f"{next(iter(there))!r}. Replace them with on_existing='overwrite', or write to another dataset or branch"
        )
    noted = dataset.replaced()
    return noted if noted.items() & there.items() else {}


def _explain(
    dataset: Dataset, write: Callable[[], Receipt], on_existing: OnExisting, options: Mapping[str, Any]
) -> None:
    """Stop with the plan of the run, and say what follows it; raise the error about files that prevent it."""
    try:
        write()
    except PlanKnown as known:
        there, note = published_files(dataset.repo, dataset.revision, [SPLIT], options), _note(dataset.folder)
        if note is None or on_existing != "resume" or there != note["files"]:
            _replaced(dataset, there, on_existing, is_published=note is not None)
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
