# SPDX-License-Identifier: Apache-2.0
"""Prometheus and Grafana for runs on this machine: their configuration, and the two processes."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curator_df.errors import CuratorError
from curator_df.monitor.alert_rules import rule_groups
from curator_df.monitor.dashboard import DATASOURCE, UID, dashboard
from curator_df.monitor.targets import LOOPBACK, TARGETS_FOLDER, delete_left_behind

SCRAPE_INTERVAL = "5s"
READY_SECONDS = 60.0
"""How long a server may take until it answers."""
END_SECONDS = 10.0
"""How long it may take to end before it is killed."""
LOG_LINES = 8
"""Of a server that ended, in the error."""
PROMETHEUS_MISSING = (
    "prometheus is not installed (apt install prometheus, or https://prometheus.io/download); it must be on the PATH"
)
GRAFANA_MISSING = (
    "neither grafana-server nor grafana is installed (https://grafana.com/grafana/download); it must be on the PATH"
)
DASHBOARDS = "grafana/dashboards"
PROVISIONING = "grafana/provisioning"


@dataclass(frozen=True)
class Stack:
    """Where everything is."""

    directory: Path
    """Folder of the configuration, of what is measured, and of the targets that `curator_df.serve_metrics` writes."""
    address: str = LOOPBACK
    """Address that both servers listen at."""
    prometheus_port: int = 9090
    """Port of Prometheus."""
    grafana_port: int = 3000
    """Port of Grafana."""

    @property
    def prometheus_url(self) -> str:
        """Address of Prometheus, from this machine."""
        return f"http://{self._reached}:{self.prometheus_port}"

    @property
    def grafana_url(self) -> str:
        """Address of Grafana, from this machine."""
        return f"http://{self._reached}:{self.grafana_port}"

    @property
    def _reached(self) -> str:
        return LOOPBACK if self.address == "0.0.0.0" else self.address  # noqa: S104 - it is compared


@dataclass(frozen=True)
class Server:
    """A server that is running."""

    name: str
    """Of the program."""
    process: subprocess.Popen[bytes]
    """Its process."""
    url: str
    """Where it answers."""
    log: Path
    """What it says."""


def write_stack(stack: Stack) -> list[Path]:
    """Write the configuration of both servers; return the files.

    What is measured stays as it is, and so do targets, except those that killed processes of this host left.
    """
    import yaml

    def as_yaml(content: dict[str, Any]) -> str:
        return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1_000))

    texts = {
        "prometheus.yml": as_yaml(_prometheus()),
        "alerts.yml": as_yaml(rule_groups()),
        f"{PROVISIONING}/datasources/curator-df.yml": as_yaml(_datasources(stack)),
        f"{PROVISIONING}/dashboards/curator-df.yml": as_yaml(_dashboards(stack)),
        f"{DASHBOARDS}/curator-df.json": json.dumps(dashboard(), indent=1) + "\n",
        "grafana/grafana.ini": _grafana_settings(stack),
    }
    (stack.directory / TARGETS_FOLDER).mkdir(parents=True, exist_ok=True)
    delete_left_behind(stack.directory)
    for name, text in texts.items():
        path = stack.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [stack.directory / name for name in texts]


def prometheus_command(stack: Stack) -> list[str] | None:
    """Return how Prometheus is started; None where it is not installed."""
    found = shutil.which("prometheus")
    if found is None:
        return None
    return [
        found,
        f"--config.file={stack.directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={stack.directory / 'data'}",
        f"--web.listen-address={stack.address}:{stack.prometheus_port}",
    ]


def grafana_command(stack: Stack) -> list[str] | None:
    """Return how Grafana is started; None where it is not installed."""
    found = shutil.which("grafana-server") or shutil.which("grafana")
    if found is None:
        return None
    program = [found] if Path(found).name == "grafana-server" else [found, "server"]  # the second is the newer name
    # The package keeps its files in /usr/share; an unpacked archive has them beside its bin.
    beside = Path(found).resolve().parent.parent
    home = beside if (beside / "public").is_dir() else Path("/usr/share/grafana")
    return [*program, f"--homepath={home}", f"--config={stack.directory / 'grafana' / 'grafana.ini'}"]


@contextlib.contextmanager
def running_servers(stack: Stack) -> Iterator[list[Server]]:
    """Start what is installed, wait until it answers, and end it when the block ends.

    Raises
    ------
    CuratorError
        If a server ends at once or does not answer; with what it said last.
    """
    commands = (
        ("prometheus", prometheus_command(stack), stack.prometheus_url, "/-/ready"),
        ("grafana", grafana_command(stack), stack.grafana_url, "/api/health"),
    )
    servers: list[Server] = []
    try:
        for name, command, url, health in commands:
            if command is not None:
                log = stack.directory / f"{name}.log"
                with log.open("wb") as said:
                    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
                servers.append(Server(name, process, url, log))
                _wait_until_ready(servers[-1], health)
        yield servers
    finally:
        for server in servers:
            server.process.terminate()
        for server in servers:
            try:
                server.process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                server.process.kill()
                server.process.wait()


def wait_for_end(servers: list[Server]) -> None:
    """Wait until one of the servers ends by itself, and raise `CuratorError` with what it said."""
    while True:
        for server in servers:
            if server.process.poll() is not None:
                raise _ended(server)
        time.sleep(0.5)


def _wait_until_ready(server: Server, health: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            raise _ended(server)
        with contextlib.suppress(urllib.error.URLError, OSError):  # it does not listen yet, or is not ready
            urllib.request.urlopen(server.url + health, timeout=2).close()  # noqa: S310 - the address is ours
            return
        time.sleep(0.2)
    raise CuratorError(f"{server.name} does not answer at {server.url} after {READY_SECONDS:.0f} s; see {server.log}")


def _ended(server: Server) -> CuratorError:
    last = "\n".join(server.log.read_text(errors="replace").splitlines()[-LOG_LINES:])
    return CuratorError(f"{server.name} ended with code {server.process.returncode}. It said last:\n{last}")


def _prometheus() -> dict[str, Any]:
    # Names of files are taken from the folder in which this file lies.
    discovered = {"files": [f"{TARGETS_FOLDER}/*.json"], "refresh_interval": SCRAPE_INTERVAL}
    return {
        "global": {"scrape_interval": SCRAPE_INTERVAL, "evaluation_interval": SCRAPE_INTERVAL},
        "rule_files": ["alerts.yml"],
        "scrape_configs": [{"job_name": "curator-df", "file_sd_configs": [discovered]}],
    }


def _datasources(stack: Stack) -> dict[str, Any]:
    source = {
        "name": "Prometheus",
        **DATASOURCE,
        "access": "proxy",
        "url": stack.prometheus_url,
        "isDefault": True,
        "jsonData": {"timeInterval": SCRAPE_INTERVAL},
    }
    return {"apiVersion": 1, "datasources": [source]}


def _dashboards(stack: Stack) -> dict[str, Any]:
    folder = {"path": str(stack.directory / DASHBOARDS)}
    return {"apiVersion": 1, "providers": [{"name": "curator-df", "type": "file", "options": folder}]}


def _grafana_settings(stack: Stack) -> str:
    home = stack.directory / "grafana"
    # Who can reach the loopback interface may look; at another address one logs in.
    anonymous = "true" if stack.address == LOOPBACK else "false"
    return (
        f"[server]\nhttp_addr = {stack.address}\nhttp_port = {stack.grafana_port}\n\n"
        f"[paths]\ndata = {home / 'data'}\nlogs = {home / 'logs'}\nplugins = {home / 'plugins'}\n"
        f"provisioning = {stack.directory / PROVISIONING}\n\n"
        f"[auth.anonymous]\nenabled = {anonymous}\norg_role = Viewer\n\n"
        f"[dashboards]\ndefault_home_dashboard_path = {stack.directory / DASHBOARDS / 'curator-df.json'}\n\n"
        "[analytics]\nreporting_enabled = false\ncheck_for_updates = false\n"
    )


def dashboard_url(stack: Stack) -> str:
    """Return the address of the dashboard in Grafana."""
    return f"{stack.grafana_url}/d/{UID}"
