# SPDX-License-Identifier: Apache-2.0
"""Configuration and processes of Prometheus and Grafana for runs on this machine."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from curator_df.core.runner.advice import MANY_RETRIES, MUCH_SKEW
from curator_df.errors import CuratorError, ParameterError
from curator_df.monitor.targets import LOOPBACK, TARGETS_FOLDER, delete_left_behind

BUDGET_SHARE = 0.9
"""Default threshold of `curator_df.monitor.alerts.budget_share`."""
SPILL_BYTES_PER_SECOND = 50e6
"""Default threshold of `curator_df.monitor.alerts.spill_rate`."""
GPU_SHARE = 0.9
"""Default threshold of `curator_df.monitor.alerts.gpu_share`."""
STALLED_SECONDS = 900
"""Seconds without a finished task until a run counts as stalled. An input split takes seconds; row by row it may take minutes."""
QUARANTINED_SHARE = 0.01
DROPPED_SHARE = 0.95


@dataclass(frozen=True)
class PrometheusRule:
    """One alert."""

    name: str
    """Name of the alert in Prometheus."""
    expr: str
    """PromQL expression; the alert fires while it has a result."""
    holds: str
    """Time for which the expression must have a result before the alert fires, as a Prometheus duration."""
    severity: Literal["info", "warning", "critical"]
    """Label of the alert."""
    text: str
    """Condition in words."""
    why: str
    """Meaning of the alert, and what to do."""


def _increase(metric: str, labels: str = "") -> str:
    return f"sum by (driver) (increase({metric}{labels}[10m]))"


RULES = (
    PrometheusRule(
        "CuratorRunFailed",
        f'{_increase("curator_df_runs_total", """{outcome="failed"}""")} > 0',
        "0m",
        "critical",
        "a run ended with an error in the last 10 minutes",
        "The finished part of the output is kept. Run again with on_existing='resume' to continue.",
    ),
    PrometheusRule(
        "CuratorDriverGone",
        'up{role="driver"} == 0',
        "30s",
        "critical",
        "the process of a run no longer answers",
        "It was killed, or its machine failed (a normal end removes the targets). Run again with on_existing='resume'.",
    ),
    PrometheusRule(
        "CuratorRunStalled",
        f"(time() - curator_df_progress_timestamp_seconds > {STALLED_SECONDS}) and curator_df_runs_active > 0",
        "0m",
        "critical",
        f"a run is active, but no task has finished for {STALLED_SECONDS // 60} minutes",
        "A step hangs, or there are no workers. Check the panel of busy threads in each step.",
    ),
    PrometheusRule(
        "CuratorBudgetNearlyUsed",
        f"curator_df_memory_held_bytes / curator_df_memory_allowed_bytes > {BUDGET_SHARE}",
        "1m",
        "warning",
        f"all processes together use more than {BUDGET_SHARE:.0%} of the memory budget",
        "A step needs more memory than it declares (measure it with profile_memory), or other code in this process uses memory.",
    ),
    PrometheusRule(
        "CuratorBudgetExceeded",
        "curator_df_memory_peak_bytes > curator_df_memory_allowed_bytes",
        "0m",
        "critical",
        "the actual peak memory of the run exceeded the memory budget",
        "The budget was not kept. Please report this as a bug, with the receipt.",
    ),
    PrometheusRule(
        "CuratorPlanExceeded",
        "curator_df_memory_peak_bytes > curator_df_memory_projected_bytes",
        "0m",
        "warning",
        "the actual peak memory exceeded the estimated peak",
        "A step needs more memory than it declares. Measure your own functions with profile_memory.",
    ),
    PrometheusRule(
        "CuratorWorkersMissing",
        'sum by (driver) (dask_scheduler_workers{role="scheduler"}) < sum by (driver) (curator_df_workers_expected)',
        "2m",
        "warning",
        "fewer workers are connected than the layout needs",
        "A worker did not restart. Check its log, and the queue of the cluster.",
    ),
    PrometheusRule(
        "CuratorWorkerLost",
        f'{_increase("curator_df_retries_total", """{cause="worker lost"}""")} > 0',
        "0m",
        "warning",
        "an input split crashed its worker in the last 10 minutes",
        "Native code allocates too much memory or crashes. The input split is retried exclusively.",
    ),
    PrometheusRule(
        "CuratorWorkerPaused",
        'dask_scheduler_workers{role="scheduler", state="paused"} > 0',
        "1m",
        "warning",
        "a worker is paused because its memory is full",
        "Give the workers of the cluster more memory or fewer threads. This happens only on clusters used through connect().",
    ),
    PrometheusRule(
        "CuratorManyRetries",
        f"{_increase('curator_df_retries_total')} / {_increase('curator_df_tasks_total')} > {MANY_RETRIES}",
        "2m",
        "warning",
        f"more than {MANY_RETRIES:.0%} of the tasks of the last 10 minutes were retried",
        "Use a smaller blocksize= or more memory=.",
    ),
    PrometheusRule(
        "CuratorRowsOutOfMemory",
        f'{_increase("curator_df_rows_quarantined_total", """{cause="memory"}""")} > 0',
        "0m",
        "warning",
        "rows were quarantined in the last 10 minutes because one row alone did not fit in memory",
        "To include these rows, set a larger memory= and run again with on_existing='overwrite'.",
    ),
    PrometheusRule(
        "CuratorRowsQuarantined",
        f'{_increase("curator_df_rows_quarantined_total", """{cause="other"}""")} / {_increase("curator_df_rows_read_total")}'
        f" > {QUARANTINED_SHARE}",
        "1m",
        "warning",
        f"more than {QUARANTINED_SHARE:.0%} of the rows of the last 10 minutes were quarantined",
        "The rows cannot be read, or one of your functions raises on them. Check the quarantine reasons.",
    ),
    PrometheusRule(
        "CuratorNearlyAllDropped",
        f"1 - {_increase('curator_df_rows_written_total')} / {_increase('curator_df_rows_read_total')} > {DROPPED_SHARE}",
        "2m",
        "warning",
        f"more than {DROPPED_SHARE:.0%} of the rows of the last 10 minutes were dropped",
        "A filter may be misconfigured. Check the drop reasons.",
    ),
    PrometheusRule(
        "CuratorWorkerLeaks",
        "sum by (driver) (curator_df_leaks_total) > 0",
        "0m",
        "warning",
        "the memory of a worker grew after each task",
        "There may be a memory leak. The receipt names the step, if known, and reports whether the worker was restarted.",
    ),
    PrometheusRule(
        "CuratorSpilling",
        'rate(dask_worker_spill_bytes_total{role="worker", activity="disk-write"}[1m]) > '
        f"{SPILL_BYTES_PER_SECOND:.0f}",
        "1m",
        "warning",
        f"a worker writes more than {SPILL_BYTES_PER_SECOND / 1e6:.0f} MB per second to its spill directory",
        "curator_df's tasks return no data, so other code on the cluster keeps results in memory.",
    ),
    PrometheusRule(
        "CuratorGpuMemoryNearlyFull",
        "max by (driver, host, gpu) (curator_df_gpu_memory_used_bytes / curator_df_gpu_memory_total_bytes) > "
        f"{GPU_SHARE}",
        "1m",
        "warning",
        f"more than {GPU_SHARE:.0%} of a GPU's memory is in use",
        "An allocation may fail soon. Use a smaller blocksize=, or stop other programs on that GPU.",
    ),
    PrometheusRule(
        "CuratorHashSkew",
        f"curator_df_exchange_skew_ratio > {MUCH_SKEW}",
        "0m",
        "info",
        f"one task of a comparison had more than {MUCH_SKEW:g} times the mean number of keys",
        "Many rows have the same key. Remove identical texts first with drop_exact_duplicates.",
    ),
)


def rule_groups() -> dict[str, Any]:
    """Return the rules in the format of a Prometheus rule file."""
    return {"groups": [{"name": "curator-df", "rules": list(_rules())}]}


def _rules() -> Iterator[dict[str, Any]]:
    for rule in RULES:
        yield {
            "alert": rule.name,
            "expr": rule.expr,
            "for": rule.holds,
            "labels": {"severity": rule.severity},
            "annotations": {"summary": rule.text, "description": rule.why},
        }


SCRAPE_INTERVAL = "5s"
READY_SECONDS = 60.0
"""Maximum seconds until a server answers."""
END_SECONDS = 10.0
"""Maximum seconds until a server ends before it is killed."""
LOG_LINES = 8
"""Lines of the log of a failed server that the error includes."""
PROMETHEUS_MISSING = (
    "Prometheus is not on the PATH. Install it with `apt install prometheus` or from https://prometheus.io/download."
)
GRAFANA_MISSING = (
    "Neither grafana-server nor grafana is on the PATH. Install Grafana from https://grafana.com/grafana/download."
)
DASHBOARDS = "grafana/dashboards"
DASHBOARD_FILE = Path(__file__).with_name("grafana_dashboard.json")
"""The dashboard in Grafana's format, which ``docs/generate_dashboard.py`` writes."""
DASHBOARD_UID = "curator-df-run"
DATASOURCE = {"type": "prometheus", "uid": "curator-df"}
"""Data source of every panel."""
PROVISIONING = "grafana/provisioning"


@dataclass(frozen=True)
class Stack:
    """Folder, address and ports of the two servers."""

    directory: Path
    """Folder of the configuration, the measurements, and the targets that `curator_df.serve_metrics` writes."""
    address: str = LOOPBACK
    """Address at which both servers listen."""
    prometheus_port: int = 9090
    """Port of Prometheus."""
    grafana_port: int = 3000
    """Port of Grafana."""

    @property
    def prometheus_url(self) -> str:
        """Address of Prometheus on this machine."""
        return f"http://{self._reached}:{self.prometheus_port}"

    @property
    def grafana_url(self) -> str:
        """Address of Grafana on this machine."""
        return f"http://{self._reached}:{self.grafana_port}"

    @property
    def _reached(self) -> str:
        anywhere = {"0.0.0.0": LOOPBACK, "::": "[::1]"}  # noqa: S104 - only compared, not bound
        return anywhere.get(self.address, self.listens)

    @property
    def listens(self) -> str:
        """Address in the form that can precede a port: IPv6 has brackets."""
        return f"[{self.address}]" if ":" in self.address else self.address


@dataclass(frozen=True)
class Server:
    """Running server."""

    name: str
    """Name of the program."""
    process: subprocess.Popen[bytes]
    """Process of the server."""
    url: str
    """Address at which it answers."""
    log: Path
    """File with its output."""


def require_addresses(stack: Stack) -> None:
    """Raise `ParameterError` if the two servers cannot listen at their address and ports."""
    for name, port in (("port", stack.prometheus_port), ("grafana_port", stack.grafana_port)):
        if not 0 < port < 65_536:
            raise ParameterError(f"{name}={port} is not a valid port number. Use one from 1 to 65535")
    if stack.prometheus_port == stack.grafana_port:
        raise ParameterError(
            f"port={stack.prometheus_port} and grafana_port={stack.grafana_port} are the same. Use a port for each server"
        )
    try:
        socket.getaddrinfo(stack.address, stack.prometheus_port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:
        raise ParameterError(
            f"address={stack.address!r} is not an address or name of this machine ({exc}). Use 127.0.0.1 for this machine "
            "only, or 0.0.0.0 for all its networks"
        ) from exc


def write_stack(stack: Stack) -> list[Path]:
    """Write the configuration of both servers; return the files.

    Measurements are kept, and so are targets, except those left behind by killed processes of this host.
    """
    import yaml

    require_addresses(stack)

    def as_yaml(content: dict[str, Any]) -> str:
        return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1_000))

    texts = {
        "prometheus.yml": as_yaml(_prometheus()),
        "alerts.yml": as_yaml(rule_groups()),
        f"{PROVISIONING}/datasources/curator-df.yml": as_yaml(_datasources(stack)),
        f"{PROVISIONING}/dashboards/curator-df.yml": as_yaml(_dashboards(stack)),
        f"{DASHBOARDS}/curator-df.json": DASHBOARD_FILE.read_text(encoding="utf-8"),
        "grafana/grafana.ini": _grafana_settings(stack),
    }
    try:
        (stack.directory / TARGETS_FOLDER).mkdir(parents=True, exist_ok=True)
        delete_left_behind(stack.directory)
        for name, text in texts.items():
            path = stack.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise ParameterError(
            f"The folder {str(stack.directory)!r} cannot be written to ({exc.filename!r}: {exc.strerror or exc}). Name another "
            "one with --dir"
        ) from exc
    return [stack.directory / name for name in texts]


def prometheus_command(stack: Stack) -> list[str] | None:
    """Return the command that starts Prometheus, or None if it is not installed."""
    found = shutil.which("prometheus")
    if found is None:
        return None
    return [
        found,
        f"--config.file={stack.directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={stack.directory / 'data'}",
        f"--web.listen-address={stack.listens}:{stack.prometheus_port}",
    ]


def grafana_command(stack: Stack) -> list[str] | None:
    """Return the command that starts Grafana, or None if it is not installed."""
    found = shutil.which("grafana-server") or shutil.which("grafana")
    if found is None:
        return None
    program = [found] if Path(found).name == "grafana-server" else [found, "server"]  # the second is the newer name
    # The package keeps its files in /usr/share; an unpacked archive has them next to its bin folder.
    folder = Path(found).resolve().parent.parent
    home = folder if (folder / "public").is_dir() else Path("/usr/share/grafana")
    return [*program, f"--homepath={home}", f"--config={stack.directory / 'grafana' / 'grafana.ini'}"]


@contextlib.contextmanager
def running_servers(stack: Stack) -> Iterator[list[Server]]:
    """Start the servers that are installed, wait until they answer, and end them when the block ends.

    Raises
    ------
    CuratorError
        If a server ends at once or does not answer; the message has its last output.
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
    """Wait until one of the servers ends, and raise `CuratorError` with its last output."""
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
        with contextlib.suppress(urllib.error.URLError, OSError):  # not listening or not ready yet
            urllib.request.urlopen(server.url + health, timeout=2).close()  # noqa: S310 - the address is ours
            return
        time.sleep(0.2)
    raise CuratorError(
        f"{server.name} did not answer at {server.url} within {READY_SECONDS:.0f} s. Read its log, {server.log}, and start "
        "it again"
    )


def _ended(server: Server) -> CuratorError:
    last = "\n".join(server.log.read_text(errors="replace").splitlines()[-LOG_LINES:])
    return CuratorError(f"{server.name} ended with exit code {server.process.returncode}. Its last output:\n{last}")


def _prometheus() -> dict[str, Any]:
    # File names are relative to the folder of this file.
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
    # Anyone who can reach the loopback interface may read; at another address, a login is required.
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
    return f"{stack.grafana_url}/d/{DASHBOARD_UID}"
