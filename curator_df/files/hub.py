# SPDX-License-Identifier: Apache-2.0
"""Hugging Face hub (``hf://``): pin URLs to a commit, download files of models, and turn the errors of its client into ours.

A branch can move while a run reads it, or between a run and its resume. The content of a commit never changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from curator_df.arguments import did_you_mean_path
from curator_df.errors import CuratorError, InputError, ParameterError, RemoteFileError, without_frames
from curator_df.extras import missing_extra
from curator_df.files.retry import TRANSIENT_STATUS, retry_transient, without_queries
from curator_df.files.storage import file_system

PROTOCOL = "hf://"
_MODEL_FILE = re.compile(r"hf://(?!datasets/|spaces/)([\w.-]+/[\w.-]+)(?:@(refs/[^/\0]+/[^/\0]+|[^/\0]+))?/([^\0]+)")
"""Address of a file of a model on the hub: its repository, revision (which may be a pull request, such as refs/pr/1) and path."""
_PINNED = re.compile(r"(hf://(?:datasets/|spaces/)?[^/@\0]+/[^/@\0]+)@([0-9a-f]{40})(?=[/\0]|$)")
Commits = dict[tuple[str, str, str], str]
"""Commit of each kind of repository, its name and the requested revision."""


def is_pinned(url: str) -> bool:
    """Return whether a URL is that of a file in a commit, which never changes.

    Examples
    --------
    >>> is_pinned("hf://datasets/org/name/a.parquet"), is_pinned(f"hf://datasets/org/name@{'0' * 40}/a.parquet")
    (False, True)
    """
    return _PINNED.match(url) is not None


def without_commits(urls: str) -> str:
    """Return URLs without the commits of those that are pinned.

    Examples
    --------
    >>> without_commits(f"hf://datasets/org/name@{'0' * 40}/a.parquet")
    'hf://datasets/org/name/a.parquet'
    """
    return _PINNED.sub(r"\1", urls)


def pins_of(urls: Iterable[str]) -> tuple[str, ...]:
    """Return the repositories of pinned URLs, each with its commit, in order.

    Examples
    --------
    >>> pins_of([f"hf://datasets/org/name@{'0123456789' * 4}/{name}.parquet" for name in "ab"] + ["/data/c.parquet"])
    ('hf://datasets/org/name at commit 0123456789012345678901234567890123456789',)
    """
    found = (_PINNED.match(url) for url in urls if url.startswith(PROTOCOL))
    return tuple(dict.fromkeys(f"{match[1]} at commit {match[2]}" for match in found if match))


def pinned(url: str, options: Mapping[str, Any], commits: Commits) -> str:
    """Return a URL of the hub with its branch or tag replaced by the commit to which it points; any other URL unchanged.

    Parameters
    ----------
    url : str
        Path, or URL of a file, folder or glob. Files of a bucket have no commits, and their URLs are returned unchanged.
    options : mapping
        Options of fsspec, such as ``token``.
    commits : dict
        Commits that are known; new ones are added, so that all URLs of one call are pinned to the same commit.

    Raises
    ------
    InputError
        If the repository or the revision does not exist, or this token may not read it.
    RemoteFileError
        If the hub refuses the token, or cannot be reached.
    ParameterError
        If it is not the URL of a repository.
    """
    if not url.startswith(PROTOCOL):
        return url
    system, _ = file_system(url, options)
    from huggingface_hub import HfApi

    def look_up() -> str:
        if not commits:
            system.invalidate_cache()  # an earlier call may not have found what exists now
        place = system.resolve_path(url)
        if not hasattr(place, "revision"):
            return url
        key = (place.repo_type, place.repo_id, place.revision)
        if key not in commits:
            api = HfApi(endpoint=system.endpoint, token=system.token)
            commits[key] = str(api.repo_info(place.repo_id, repo_type=place.repo_type, revision=place.revision).sha)
        kind = f"{place.repo_type}s/" if place.repo_type != "model" else ""
        return f"{PROTOCOL}{kind}{place.repo_id}@{commits[key]}/{place.path_in_repo}".rstrip("/")

    with hub_errors(url):
        try:
            return retry_transient(f"look up {url!r}", look_up)
        except (ValueError, NotImplementedError) as exc:
            if isinstance(exc, CuratorError):
                raise
            raise ParameterError(
                f"{url!r} is not an address on the hub: {str(exc).rstrip('.')}. Use "
                "hf://datasets/organization/name/path, or with a branch, "
                "tag or commit hf://datasets/organization/name@revision/path"
            ) from exc


@contextmanager
def hub_errors(what: str) -> Iterator[None]:
    """Convert errors of the hub's client to errors that say what was requested, and what to do."""
    try:
        yield
    except CuratorError:
        raise
    except Exception as exc:
        converted = _converted(what, exc)
        if converted is None:
            raise
        raise converted from without_frames(exc)


LOG_IN = "Log in with `hf auth login`, or set HF_TOKEN, on every machine of the cluster; or pass storage_options={'token': ...}"


_REASONS: dict[str, tuple[type[CuratorError], str]] = {
    "GatedRepoError": (
        InputError,
        f"is in a gated repository, which this token may not read. Accept the conditions on its page. {LOG_IN}",
    ),
    "RepositoryNotFoundError": (
        InputError,
        f"is in no repository of the hub that this token may read: it does not exist, or it is private. {LOG_IN}",
    ),
    "RevisionNotFoundError": (
        InputError,
        "has a revision that does not exist. Use a branch, tag or commit of the repository",
    ),
    "HFValidationError": (
        ParameterError,
        (
            "is not a valid name of a dataset: the hub takes letters, digits, '-', '_' and '.' (at most 96), but not '--', '..', "
            "'-' or '.' at either end, or '.git' at the end. Use another name"
        ),
    ),
    "OfflineModeIsEnabled": (
        RemoteFileError,
        "cannot be reached, because HF_HUB_OFFLINE is set. Unset it, or use a local copy of the files",
    ),
    "LocalTokenNotFoundError": (RemoteFileError, f"needs a token. {LOG_IN}"),
}
"""Error and its text for each exception of the hub's client, by name."""


def _converted(what: str, exc: BaseException | None) -> CuratorError | None:
    """Return an error of ours for one of the hub's client, or for its cause; None for others."""
    while exc is not None:
        kind = type(exc).__name__
        if kind in _REASONS:
            error, said = _REASONS[kind]
            return error(f"{what!r} {said}")
        status = getattr(getattr(exc, "response", None), "status_code", None)
        if kind == "HfHubHTTPError" and status in (401, 403):
            answer = " ".join(without_queries(str(exc)).split("\n")[0].split())
            return RemoteFileError(f"{what!r}: the hub refused the token ({answer or status}). {LOG_IN}")
        if isinstance(exc, OSError) and status is not None and status not in TRANSIENT_STATUS:
            answer = " ".join(without_queries(str(exc)).split())
            return RemoteFileError(f"{what!r}: the hub refused the request ({answer}). Check the address")
        exc = exc.__cause__
    return None


def refuse_hub_output(url: str) -> None:
    """Raise `ParameterError` for a folder on the hub: there, every file would be a commit of its own."""
    if url.startswith(PROTOCOL):
        raise ParameterError(
            f"{url!r} cannot be written to: only write_parquet and write_jsonl write their output to a dataset of the hub. Use "
            "a folder or an object store. A finished output in a local folder is published with "
            "push_to_hub(folder, 'organization/name')"
        )


def client_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the address of the hub and the token among fsspec options, for the hub's own client."""
    return {"endpoint": options.get("endpoint"), "token": options.get("token")}


def download(name: str, revision: str | None, patterns: Sequence[str], **options: Any) -> str:
    """Return the folder in the cache of the Hugging Face hub with such files of a model, downloaded if they are missing."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as exc:
        needed_by = f"the model {name!r} is not a folder on this machine, and downloading it from the Hugging Face hub"
        raise missing_extra(needed_by, "huggingface_hub", "hub") from exc
    try:
        return str(snapshot_download(name, revision=revision, allow_patterns=list(patterns), **options))
    except (OSError, ValueError) as exc:
        at = f" at {revision!r}" if revision else ""
        raise InputError(
            f"the model {name!r}{at} is neither a local folder nor in the cache of the Hugging Face Hub, and could not be "
            f"downloaded: {str(exc).rstrip('. ')}. Check the name and the network, or download the model "
            f"first{did_you_mean_path(name)}"
        ) from without_frames(exc)


def download_file(url: str) -> tuple[str, str]:
    """Return the path of a file of a model on the hub in the cache of this machine, and its address at a commit.

    Parameters
    ----------
    url : str
        Address such as ``hf://organization/name/model.bin``, or with a revision ``hf://organization/name@revision/model.bin``.

    Raises
    ------
    InputError
        If it is not such an address, or the file is not in the cache and cannot be downloaded.
    MissingExtraError
        If the package huggingface_hub is not installed.
    """
    place = _MODEL_FILE.fullmatch(url)
    if place is None:
        raise InputError(
            f"{url!r} is not the address of a file of a model on the hub. Use hf://organization/name/path, or with a branch, tag "
            "or commit hf://organization/name@revision/path"
        )
    name, revision, file = place.groups()
    revision = revision and unquote(revision)
    folder = Path(download(name, revision, [file]))
    if not (folder / file).is_file():
        raise InputError(
            f"the repository {name!r} on the Hugging Face hub has no file {file!r}. Correct the address {url!r}"
        )
    return str(folder / file), f"{PROTOCOL}{name}@{folder.name}/{file}"
