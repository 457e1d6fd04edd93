# SPDX-License-Identifier: Apache-2.0
"""A real Slurm on this machine for tests: munged, slurmctld and slurmd in a folder of their own, on free ports.

Its node has two GPUs, which are device files that discard what is written to them: enough for Slurm to hand them out. It says
that it has at least four CPUs, so that two jobs of two processes run side by side.

Needs Debian's packages slurmctld, slurmd, slurm-client and munge, and root, as slurmd does.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

SETTINGS = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
MpiDefault=none
ReturnToService=2
SwitchType=switch/none
SchedulerType=sched/backfill
KillWait=5
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={megabytes} Gres=gpu:{gpus} State=UNKNOWN
PartitionName=cpu Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""
GPUS = 2
LEAST_CPUS = 4
START_SECONDS = 60


def why_no_slurm() -> str:
    """Return why Slurm cannot be started here; empty if it can."""
    missing = [name for name in ("munged", "slurmctld", "slurmd", "sbatch", "scancel") if which(name) is None]
    if missing:
        return f"needs {', '.join(missing)} (Debian: slurmctld slurmd slurm-client munge)"
    return "" if os.geteuid() == 0 else "slurmd has to run as root"


def which(name: str) -> str | None:
    """Find a program, also where daemons lie."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def slurm(*command: str) -> str:
    """Run a command of Slurm and return what it says."""
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@contextmanager
def running_slurm(folder: Path) -> Iterator[None]:
    """Start Slurm; its commands, here and in child processes, then speak to it (``SLURM_CONF``)."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    host = socket.gethostname().partition(".")[0]
    megabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1 << 20) - 500
    ports = {"controller_port": free_port(), "node_port": free_port()}
    settings = folder / "slurm.conf"
    node = {"host": host, "cpus": max(LEAST_CPUS, os.cpu_count() or 1), "megabytes": megabytes, "gpus": GPUS}
    settings.write_text(SETTINGS.format(folder=folder, **node, **ports), encoding="utf-8")
    for number in range(GPUS):
        os.mknod(folder / f"gpu{number}", 0o666 | stat.S_IFCHR, os.stat(os.devnull).st_rdev)
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-{GPUS - 1}]\n", encoding="utf-8")
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o400)
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(settings)
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        daemons.append(start_daemon(folder, "munged", *munge_options(folder)))
        wait_until((folder / "munge.socket").exists, daemons, folder)
        daemons.append(start_daemon(folder, "slurmctld", "-D", "-f", str(settings)))
        daemons.append(start_daemon(folder, "slurmd", "-D", "-f", str(settings), "-N", host))
        wait_until(lambda: node_state() == "idle", daemons, folder)
        yield
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(timeout=30)
        if before is None:
            del os.environ["SLURM_CONF"]
        else:
            os.environ["SLURM_CONF"] = before


def munge_options(folder: Path) -> list[str]:
    names = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munge.pid", "seed-file": "munge.seed"}
    files = [f"--{option}={folder / name}" for option, name in names.items()]
    # --force: the folder is below one that others may write to (/tmp), which munged otherwise refuses.
    return ["--foreground", "--force", f"--log-file={folder / 'munge.log'}", *files]


def start_daemon(folder: Path, name: str, *options: str) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.said").open("wb") as said:
        return subprocess.Popen([str(which(name)), *options], stdout=said, stderr=said, stdin=subprocess.DEVNULL)


def node_state() -> str:
    said = subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, text=True, check=False, timeout=60)
    return said.stdout.strip()


def wait_until(is_so: Callable[[], bool], daemons: list[subprocess.Popen[bytes]], folder: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_so():
        ended = [daemon.args for daemon in daemons if daemon.poll() is not None]
        if ended or time.monotonic() > deadline:
            said = "\n".join(path.read_text(errors="replace")[-2000:] for path in sorted(folder.glob("*.said")))
            raise RuntimeError(f"Slurm did not start: ended {ended}, node {node_state()!r}; it said\n{said}")
        time.sleep(0.2)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
