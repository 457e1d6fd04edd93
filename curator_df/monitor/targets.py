# SPDX-License-Identifier: Apache-2.0
"""Where the metrics of a session are served, written to a file that Prometheus looks at (``file_sd_configs``)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from curator_df.monitor.processes import start_ticks

TARGETS_FOLDER = "targets"
LOOPBACK = "127.0.0.1"


def default_directory() -> Path:
    """Return the folder that `serve_metrics` and ``curator-df monitor up`` share unless they are told another."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "curator-df" / "monitor"


def targets_path(directory: Path) -> Path:
    """Return the file of this process. Its name has the host, the process number, and when the process started."""
    return directory / TARGETS_FOLDER / f"{socket.gethostname()}-{os.getpid()}-{start_ticks(os.getpid())}.json"


def delete_left_behind(directory: Path) -> None:
    """Delete the files of processes of this host that ended without deleting theirs."""
    owner = re.compile(re.escape(socket.gethostname()) + r"-(\d+)-(\d+)\.json")
    for path in (directory / TARGETS_FOLDER).glob("*.json"):
        found = owner.fullmatch(path.name)
        # Of a process that lives on, or of one that has its number now: then it started at another time.
        if found and start_ticks(int(found[1])) != int(found[2]):
            with contextlib.suppress(OSError):  # another user's
                path.unlink()


def scrape_targets(driver: str, served: str, scheduler: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the targets of one session.

    Parameters
    ----------
    driver : str
        Names the session: the label that its targets have in common.
    served : str
        Host and port of the client's metrics.
    scheduler : dict
        What `distributed.Client.scheduler_info` returned, with all workers.

    Returns
    -------
    list of dict
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


def write_targets(path: Path, groups: list[dict[str, Any]]) -> None:
    """Replace the file at once: Prometheus may read it at any time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")  # not .json: Prometheus does not look at it
    unfinished.write_text(json.dumps(groups, indent=1))
    unfinished.replace(path)


def _group(target: str, driver: str, **labels: str) -> dict[str, Any]:
    return {"targets": [target], "labels": {"driver": driver, **labels}}


def _host(address: str) -> str:
    """Return the host of a Dask address; threads of this process (``inproc``) serve on the loopback interface."""
    parts = urlsplit(address)
    host = LOOPBACK if parts.scheme == "inproc" or parts.hostname is None else parts.hostname
    return f"[{host}]" if ":" in host else host
