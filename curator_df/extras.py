# SPDX-License-Identifier: Apache-2.0
"""Checks for optional packages, and the command that installs the extra of a missing one."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from curator_df.errors import MissingExtraError

DISTRIBUTION = "curator-df"
_OF_EXTRA = re.compile(r"""\s*;\s*extra\s*==\s*["']([\w-]+)["']\s*$""")


def require_package(needed_by: str, package: str, extra: str) -> None:
    """Raise `MissingExtraError` if a package is not installed. The package is not imported.

    Parameters
    ----------
    needed_by : str
        Part of curator_df that needs the package, as the user wrote it: ``"remove_html"``, ``"words='icu'"``.
    package : str
        Name under which the package is imported.
    extra : str
        Extra of curator_df that installs it.
    """
    if importlib.util.find_spec(package) is None:
        raise missing_extra(needed_by, package, extra)


def missing_extra(needed_by: str, packages: str | Sequence[str], extra: str) -> MissingExtraError:
    """Return the error for one package or several that are not installed.

    Examples
    --------
    >>> print(missing_extra("remove_html", "resiliparse", "html"))
    remove_html needs the package resiliparse, which is not installed. Install it with: ...pip install ...[html]...
    >>> print(missing_extra("gpus=1", ["cudf", "dask_cudf", "rmm"], "gpu"))
    gpus=1 needs the packages cudf, dask-cudf and rmm, which are not installed. Install them with: ...pip install ...[gpu]...
    """
    names = [packages] if isinstance(packages, str) else list(packages)
    *others, last = (name.replace("_", "-") for name in names)  # pip treats both as the same name
    if others:
        which, them = f"packages {', '.join(others)} and {last}, which are not installed", "them"
    else:
        which, them = f"package {last}, which is not installed", "it"
    return MissingExtraError(
        f"{needed_by} needs the {which}. Install {them} with: {install_command(extra)}", name=names[0]
    )


def install_command(extra: str) -> str:
    """Return the command that installs an extra in this environment."""
    return f"{pip_install()} {_arguments(extra)}"


def pip_install() -> str:
    """Return the beginning of a command that installs a package in this environment."""
    python = shlex.quote(sys.executable)
    has_pip = importlib.util.find_spec("pip") is not None  # uv creates environments without it
    return f"{python} -m pip install" if has_pip else f"uv pip install --python {python}"


def _arguments(extra: str) -> str:
    checkout = Path(__file__).parents[1]
    if (checkout / "pyproject.toml").is_file():
        return requirement_of(extra, {"url": checkout.as_uri(), "dir_info": {"editable": True}})
    try:
        installed = importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:  # a copy of the folder on the path
        return requirement_of(extra, None)
    recorded = installed.read_text("direct_url.json")
    direct_url = None if recorded is None else json.loads(recorded)
    if direct_url is not None:
        place = urlsplit(direct_url["url"])
        if place.scheme == "file" and not Path(unquote(place.path)).exists():  # the wheel or folder was deleted
            return packages_of(extra, installed.requires or [])
    return requirement_of(extra, direct_url)


def requirement_of(extra: str, direct_url: Mapping[str, Any] | None) -> str:
    """Return pip's arguments for an extra of curator_df.

    Parameters
    ----------
    extra : str
        Name of the extra.
    direct_url : mapping, optional
        The ``direct_url.json`` that the installer recorded (PEP 610); None if curator_df was installed from an index.

    Examples
    --------
    >>> print(requirement_of("html", None))
    'curator-df[html]'
    >>> print(requirement_of("html", {"url": "file:///home/me/curator%20df", "dir_info": {"editable": True}}))
    -e '/home/me/curator df[html]'
    >>> print(requirement_of("html", {"url": "file:///tmp/curator_df-0.1.0-py3-none-any.whl", "archive_info": {}}))
    '/tmp/curator_df-0.1.0-py3-none-any.whl[html]'
    >>> print(requirement_of("html", {"url": "https://host/c", "vcs_info": {"vcs": "git", "commit_id": "4f1c"}}))
    'curator-df[html] @ git+https://host/c@4f1c'
    """
    if direct_url is None:
        return shlex.quote(f"{DISTRIBUTION}[{extra}]")
    url, place = direct_url["url"], urlsplit(direct_url["url"])
    if place.scheme == "file" and "vcs_info" not in direct_url:
        editable = "-e " if direct_url.get("dir_info", {}).get("editable", False) else ""
        return editable + shlex.quote(f"{unquote(place.path)}[{extra}]")
    if "vcs_info" in direct_url:
        vcs = direct_url["vcs_info"]
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    if "subdirectory" in direct_url:
        url = f"{url}#subdirectory={direct_url['subdirectory']}"
    return shlex.quote(f"{DISTRIBUTION}[{extra}] @ {url}")


def packages_of(extra: str, requires: list[str]) -> str:
    """Return pip's arguments for the packages of an extra, as the metadata of curator_df lists them.

    Examples
    --------
    >>> print(packages_of("html", ["dask>=2026.7.1", "resiliparse<3,>=2; extra == 'html'", "torch; extra == 'models'"]))
    'resiliparse<3,>=2'
    """
    wanted = [line for line in requires if (found := _OF_EXTRA.search(line)) and found[1] == extra]
    return " ".join(shlex.quote(_OF_EXTRA.sub("", line)) for line in wanted)
