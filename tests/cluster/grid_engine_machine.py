# SPDX-License-Identifier: Apache-2.0
"""A real Grid Engine on this machine for tests: sge_qmaster and sge_execd with a cell of their own, on free ports.

It is set up as many sites are: a job that names no shell starts in the C shell, with none of the environment it was sent from;
memory is counted for each slot (``h_vmem``, which also limits the address space, and ``mem_free``, which does not); ``smp`` is
the parallel environment of one node. The node says that it has at least four slots, so that two jobs of two processes run side
by side, and two GPUs, which are only counted.

Needs Debian's packages gridengine-master, gridengine-exec and gridengine-client, and root, as sge_execd does.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

PROGRAMS = "/usr/lib/gridengine"
PACKAGE = Path("/usr/share/gridengine")
BOOTSTRAP = """\
admin_user none
default_domain none
ignore_fqdn true
spooling_method classic
spooling_lib libspoolc
spooling_params {common};{folder}/spool
binary_path /usr/sbin
qmaster_spool_dir {folder}/qmaster
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
"""
NODE = """\
hostname {host}
load_scaling NONE
complex_values slots={slots},h_vmem={slots}T,mem_free={megabytes}M,gpu={gpus}
user_lists NONE
xuser_lists NONE
projects NONE
xprojects NONE
usage_scaling NONE
report_variables NONE
"""
GPU = "name gpu\nshortcut gpu\ntype INT\nrelop <=\nrequestable YES\nconsumable YES\ndefault 0\nurgency 0\n"
COUNTED = {"h_vmem": {"consumable": "YES", "default": "4G"}, "mem_free": {"consumable": "YES"}}
SCHEDULING = {"schedule_interval": "0:0:1", "flush_submit_sec": "1", "flush_finish_sec": "1"}
GPUS = 2
LEAST_SLOTS = 4
START_SECONDS = 60


def why_no_grid_engine() -> str:
    """Return why Grid Engine cannot be started here; empty if it can."""
    missing = [name for name in ("sge_qmaster", "sge_execd", "spooldefaults", "qconf") if which(name) is None]
    if missing:
        return f"needs {', '.join(missing)} (Debian: gridengine-master gridengine-exec gridengine-client)"
    return "" if os.geteuid() == 0 else "sge_execd has to run as root"


def which(name: str) -> str | None:
    """Find a program, also where daemons and what sets them up lie."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:{PROGRAMS}")


def grid_engine(*command: str) -> str:
    """Run a command of Grid Engine and return what it says."""
    program = [str(which(command[0])), *command[1:]]
    return subprocess.run(program, capture_output=True, text=True, check=True, timeout=60).stdout


@contextmanager
def running_grid_engine(folder: Path) -> Iterator[None]:
    """Start Grid Engine; its commands, here and in child processes, then speak to it (``SGE_ROOT`` and the like)."""
    host = socket.gethostname().partition(".")[0]
    ports = {"SGE_QMASTER_PORT": str(free_port()), "SGE_EXECD_PORT": str(free_port())}
    daemons: list[subprocess.Popen[bytes]] = []
    with mock.patch.dict(os.environ, {"SGE_ROOT": str(folder), "SGE_CELL": "cell", **ports}):
        make_cell(folder, host)
        try:
            daemons.append(start_daemon(folder, "sge_qmaster"))
            wait_until(lambda: host in said("qconf", "-sh"), daemons, folder)
            make_queue(folder, host)
            daemons.append(start_daemon(folder, "sge_execd"))
            wait_until(lambda: node_state(host) == "", daemons, folder)
            yield
        finally:
            for daemon in reversed(daemons):
                daemon.terminate()
                daemon.wait(timeout=30)


def make_cell(folder: Path, host: str) -> None:
    """Write what there has to be before the first daemon starts."""
    common = folder / "cell/common"
    for made in (common, folder / "qmaster", folder / "execd", folder / "spool"):
        made.mkdir(parents=True)
    (common / "bootstrap").write_text(BOOTSTRAP.format(folder=folder, common=common), encoding="utf-8")
    (common / "act_qmaster").write_text(f"{host}\n", encoding="utf-8")
    if host != "localhost":  # which is what the loopback's address may be called
        (common / "host_aliases").write_text(f"{host} localhost\n", encoding="utf-8")
    settings = {"execd_spool_dir": str(folder / "execd"), "mailer": "/bin/true", "min_uid": "0", "min_gid": "0"}
    (folder / "configuration").write_text(changed((PACKAGE / "default-configuration").read_text(), settings))
    resources = folder / "centry"
    shutil.copytree(PACKAGE / "util/resources/centry", resources)
    for name, values in COUNTED.items():
        (resources / name).write_text(changed((resources / name).read_text(), values))
    (resources / "gpu").write_text(GPU)
    grid_engine("spoolinit", "classic", "libspoolc", f"{common};{folder / 'spool'}", "init")
    grid_engine("spooldefaults", "configuration", str(folder / "configuration"))
    grid_engine("spooldefaults", "complexes", str(resources))
    grid_engine("spooldefaults", "usersets", str(PACKAGE / "util/resources/usersets"))
    grid_engine("spooldefaults", "managers", "root")


def make_queue(folder: Path, host: str) -> None:
    """Add a node, a parallel environment and a queue."""
    slots = str(max(LEAST_SLOTS, os.cpu_count() or 1))
    megabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1 << 20) - 500
    queue = {"hostlist": host, "load_thresholds": "NONE", "slots": slots, "pe_list": "smp", "shell": "/bin/csh"}
    with mock.patch.dict(os.environ, {"EDITOR": "cat"}):
        template = said("qconf", "-aq", "all.q")  # which fails, as the editor has changed nothing
    for option, text in {
        "-Ae": NODE.format(host=host, slots=slots, megabytes=megabytes, gpus=GPUS),
        "-Ap": changed((PACKAGE / "util/resources/pe/smp").read_text(), {}),
        "-Aq": changed(template, queue),
        "-Msconf": changed(said("qconf", "-ssconf"), SCHEDULING),
    }.items():
        file = folder / f"qconf{option}"
        file.write_text(text, encoding="utf-8")
        grid_engine("qconf", option, str(file))
    grid_engine("qconf", "-as", host)


def changed(settings: str, values: Mapping[str, str]) -> str:
    """Replace values in lines of a name and a value."""
    pairs = [line.split(None, 1) for line in settings.splitlines() if line.strip() and not line.startswith("#")]
    return "".join(f"{name} {values.get(name, value)}\n" for name, value in pairs)


def start_daemon(folder: Path, name: str) -> subprocess.Popen[bytes]:
    # Not the environment of these tests, of which a job would have all.
    names = ("SGE_ROOT", "SGE_CELL", "SGE_QMASTER_PORT", "SGE_EXECD_PORT")
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SGE_ND": "1"} | {name: os.environ[name] for name in names}
    with (folder / f"{name}.said").open("wb") as log:
        return subprocess.Popen(
            [str(which(name))], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, cwd=folder
        )


def said(*command: str) -> str:
    """Return what a command says, whether or not it fails."""
    program = [str(which(command[0])), *command[1:]]
    return subprocess.run(program, capture_output=True, text=True, check=False, timeout=60).stdout


def node_state(host: str) -> str:
    """Return the letters of what is wrong with the queue on this node, such as ``au``; a word more if it is not there."""
    rows = [line.split() for line in said("qstat", "-f").splitlines() if line.startswith("all.q@")]
    return " ".join([*rows[0][5:], *["unknown"] * (rows[0][3] == "-NA-")]) if rows else f"no queue on {host}"


def wait_until(is_so: Callable[[], bool], daemons: list[subprocess.Popen[bytes]], folder: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_so():
        ended = [daemon.args for daemon in daemons if daemon.poll() is not None]
        if ended or time.monotonic() > deadline:
            logs = sorted([*folder.glob("*.said"), *folder.glob("**/messages")])
            told = "\n".join(path.read_text(errors="replace")[-2000:] for path in logs)
            raise RuntimeError(
                f"Grid Engine did not start: ended {ended}, node {node_state('here')!r}; it said\n{told}"
            )
        time.sleep(0.2)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
