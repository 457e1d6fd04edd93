# SPDX-License-Identifier: Apache-2.0
"""Addresses of the metrics of a session, written to a file that Prometheus watches (``file_sd_configs``)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import urlsplit

from curator_df.monitor.processes import start_ticks

TARGETS_FOLDER = "targets"
LOOPBACK = "127.0.0.1"


class TargetGroup(TypedDict):
    """Group of addresses that have the same labels, in the form of Prometheus."""

    targets: list[str]
    """Hosts with ports."""
    labels: dict[str, str]
    """Labels of every series that is read there."""


def default_directory() -> Path:
    """Return the default folder of `serve_metrics` and ``curator-df monitor up``."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "curator-df" / "monitor"


def targets_path(directory: Path) -> Path:
    """Return the file of this process. Its name has the host, the process number, and the start time of the process."""
    return directory / TARGETS_FOLDER / f"{socket.gethostname()}-{os.getpid()}-{start_ticks(os.getpid())}.json"


def delete_left_behind(directory: Path) -> None:
    """Delete the files of processes of this host that ended without deleting theirs."""
    owner = re.compile(re.escape(socket.gethostname()) + r"-(\d+)-(\d+)\.json")
    for path in (directory / TARGETS_FOLDER).glob("*.json"):
        found = owner.fullmatch(path.name)
        # The name of a running process, unless the number was reused: then the start times differ.
        if found and start_ticks(int(found[1])) != int(found[2]):
            with contextlib.suppress(OSError):  # owned by another user
                path.unlink()


def scrape_targets(driver: str, served: str, scheduler: dict[str, Any]) -> list[TargetGroup]:
    """Return the targets of one session.

    Parameters
    ----------
    driver : str
        Name of the session: a label that all its targets have.
    served : str
        Host and port of the client's metrics.
    scheduler : dict
        Result of `distributed.Client.scheduler_info`, with all workers.

    Returns
    -------
    list of TargetGroup
        Groups of ``targets`` with ``labels``: ``role`` is ``driver``, ``scheduler`` or ``worker``; a worker keeps the label
        ``worker``, its name, when it is started again at another port.
    """
    groups = [_group(served, driver, role="driver")]
    if port := scheduler.get("services", {}).get("dashboard"):
        groups.append(_group(f"{_host(scheduler['address'])}:{port}", driver, role="scheduler"))
    for address, worker in sorted(scheduler["workers"].items()):
        if port := worker["services"].get("dashboard"):
            groups.append(_group(f"{_host(address)}:{port}", driver, role="worker", worker=str(worker["name"])))
    return groups


def write_targets(path: Path, groups: Sequence[TargetGroup]) -> None:
    """Replace the file atomically, since Prometheus may read it at any time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")  # not .json: Prometheus ignores it
    unfinished.write_text(json.dumps(groups, indent=1))
    unfinished.replace(path)


def _group(target: str, driver: str, **labels: str) -> TargetGroup:
    return {"targets": [target], "labels": {"driver": driver, **labels}}


def _host(address: str) -> str:
    """Return the host of a Dask address; threads of this process (``inproc``) serve on the loopback interface."""
    parts = urlsplit(address)
    host = LOOPBACK if parts.scheme == "inproc" or parts.hostname is None else parts.hostname
    return f"[{host}]" if ":" in host else host
