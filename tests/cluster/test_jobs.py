# SPDX-License-Identifier: Apache-2.0
"""The scripts of jobs follow from the budget; nothing is sent here (`test_slurm.py` and `test_grid_engine.py` do)."""

import asyncio
import contextlib
import io
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from types import SimpleNamespace

import dask
import psutil
import pytest
from distributed import SpecCluster, default_client

import curator_df as cdf
from curator_df import errors
from curator_df.cluster import jobs as jobqueue
from curator_df.cluster import jobs as jobs_module
from curator_df.cluster.batch import job_layout, read_jobs, read_walltime, request_jobs
from curator_df.core.runner.events import Note, TaskEnded
from curator_df.core.runner.session import current_session, has_session
from curator_df.memory.budget import choose_layout, least_with_workers
from curator_df.memory.sizes import size_to_type

pytest.importorskip("dask_jobqueue", reason="needs the jobqueue extra")
MB = 1_000_000


def made(system="slurm", tmp_path=None, **arguments):
    settings = {"memory": "4GB", "cpus": 4, "walltime": "04:00:00", "job_directory": tmp_path, "interface": "lo"}
    return cdf.job_cluster(system, **{**settings, **arguments})


def option(script, name):
    """Return the value that counts: the last one."""
    return re.findall(rf"{name} (\S+)", script)[-1]


def test_the_budget_becomes_the_job_and_the_limits_of_its_workers(tmp_path):
    layout = choose_layout(4000 * MB, cpus=4)
    cluster = made(
        tmp_path=tmp_path, jobs=(1, 8), queue="cpu", account="team", security=False, prologue=["module load x"]
    )
    try:
        script, shown = cluster.job_script, repr(cluster)
    finally:
        cluster.close()
    assert "#SBATCH --mem=3815M\n" in script  # 4 x 10^9 bytes in MiB, rounded up
    assert "#SBATCH --cpus-per-task=4\n" in script
    assert "#SBATCH -p cpu\n#SBATCH -A team\n" in script
    assert "#SBATCH -t 4:00:00\n" in script
    assert f"export CURATOR_DF_WORK_BYTES={layout.work_bytes}\n" in script
    assert "export DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE=False\n" in script
    assert script.index("module load x") < script.index("dask_worker")
    assert "warm" not in script  # the chain is not known yet: workers compile what it needs when it is
    assert int(option(script, "--memory-limit")[:-1]) * layout.workers < 4000 * MB * 1.5
    assert option(script, "--nworkers") == str(layout.workers)
    assert option(script, "--preload") == "curator_df.cluster.preload"
    assert (option(script, "--lifetime"), option(script, "--lifetime-stagger")) == ("13800s", "300s")
    assert option(script, "--local-directory") == '"${TMPDIR:-/tmp}"'
    assert "1 to 8 of slurm, 4.00 GB for each" in shown
    assert script in shown


@pytest.mark.parametrize(
    ("system", "lines"),
    [
        ("pbs", ["#PBS -S /bin/bash", "#PBS -l select=1:ncpus=4:mem=3815MB", "#PBS -l walltime=4:00:00"]),
        ("lsf", ["#BSUB -n 4", '#BSUB -R "span[hosts=1]"', '#BSUB -R "rusage[mem=3815MB]"', "#BSUB -W 4:00"]),
        ("sge", ["#$ -S /bin/bash", "#$ -l h_rt=4:00:00", "#$ -l mem_free=954M", "#$ -pe smp 4"]),
    ],
)
def test_other_batch_systems_ask_in_their_words(system, lines, tmp_path):
    directives = ["-l mem_free=954M", "-pe smp 4"] if system == "sge" else []
    cluster = made(system, tmp_path, directives=directives, security=False)
    try:
        assert set(lines) <= set(cluster.job_script.splitlines())
    finally:
        cluster.close()


def test_a_shell_of_the_users_counts(tmp_path):
    cluster = made("sge", tmp_path, directives=["-S /opt/bash", "-l h_vmem=4G", "-pe smp 4"], security=False)
    try:
        assert option(cluster.job_script, "-S") == "/opt/bash"
    finally:
        cluster.close()


def test_a_job_that_is_taken_by_a_submission_that_fails_is_withdrawn():
    class Job:
        cancel_command = "qdel"

        async def _submit_job(self, script):
            raise RuntimeError(script)

        async def _close_job(self, number, command):
            withdrawn.append((number, command))

    withdrawn = []
    job = jobqueue.withdrawing(Job)()
    for said in (
        'Unable to run job: warning: no queue\nYour job 14 ("curator-df") has been submitted\nExiting.',
        'Unable to run job: unknown queue "15"\nExiting.',
    ):
        with pytest.raises(RuntimeError, match="Unable to run job"):
            asyncio.run(job._submit_job(said))
    assert withdrawn == [("14", "qdel")]


def test_a_run_before_the_jobs_are_submitted_says_so_at_once(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    docs = cdf.read_jsonl(str(tmp_path / "in.jsonl"))
    cluster = cdf.slurm_cluster(memory="2GB", cpus=1, jobs=1, job_directory=tmp_path / "jobs")
    try:
        assert "estimated peak" in str(cdf.explain(docs))
        for run in (cdf.write_jsonl, cdf.find_exact_duplicates):
            with pytest.raises(errors.NoClusterError, match=r"no job was submitted to slurm yet.*call its start\(\)"):
                run(docs, *([tmp_path / "out"] if run is cdf.write_jsonl else []))
        assert not (tmp_path / "out").exists()
    finally:
        cluster.close()


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Commands of Slurm that take jobs which never begin: they write down what they are asked."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, said in (("sbatch", "Submitted batch job 101"), ("scancel", ""), ("squeue", "101 PENDING")):
        (folder / name).write_text(f"#!/bin/sh\necho {name} $1 >> {tmp_path}/asked\necho {said}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return (tmp_path / "asked").read_text


def test_without_the_commands_of_the_batch_system_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    for system, jobs in (("slurm", 1), ("lsf", (0, 2))):
        cluster = made(system, tmp_path / system, jobs=jobs)
        with pytest.raises(
            errors.NoClusterError, match=r"(sbatch and scancel|bsub and bkill) cannot be found.* login node"
        ):
            cluster.start()
        assert cluster.client.status == "closed"
        assert not list((tmp_path / system).iterdir())  # no key either
    assert not has_session()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_jobs_are_ended_when_waiting_for_the_queue_ends(error, commands, tmp_path, monkeypatch):
    def interrupted(_):
        raise error

    cluster = made(tmp_path=tmp_path / "jobs", security=False)
    monkeypatch.setattr(jobs_module, "time", SimpleNamespace(monotonic=time.monotonic, sleep=interrupted))
    with pytest.raises(error), cluster:
        pytest.fail("no worker has come")
    assert commands().splitlines()[-1] == "scancel 101"
    assert cluster.client.status == "closed"
    assert not has_session()


INTERRUPTED = """
import signal
{first}
import curator_df as cdf

for system in ("slurm", "pbs"):
    cdf.job_cluster(system, memory="2GB", cpus=1, interface="lo", security=False, job_directory={folder!r}).close()
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.parametrize("first", [pytest.param("", marks=pytest.mark.proof), "import dask_jobqueue"])
def test_an_interrupt_is_no_success_though_dask_jobqueue_would_have_it_so(first, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED.format(first=first, folder=str(tmp_path / "jobs")))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=280, check=False)
    assert "KeyboardInterrupt" in done.stderr
    assert done.returncode == -signal.SIGINT


LEFT_OPEN = """
import curator_df as cdf

made = [cdf.slurm_cluster(memory="2GB", cpus=1, interface="lo", security=False, job_directory={folder!r}) for _ in range(3)]
made[0].close()
del made[1]
print("end")
"""


def test_clusters_that_nobody_closes_log_nothing_at_the_end(tmp_path):
    """The first that closes used to restore Dask's logs for the others."""
    script = tmp_path / "script.py"
    script.write_text(LEFT_OPEN.format(folder=str(tmp_path / "jobs")))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=280, check=True)
    assert (done.stdout, done.stderr) == ("end\n", "")


def test_with_the_first_of_two_clusters_closed_dask_computes_on_the_second_and_then_in_this_process(tmp_path):
    first, second = (made(tmp_path=tmp_path, security=False) for _ in range(2))
    first.close()
    assert default_client() is second.client
    assert dask.config.get("scheduler") == "dask.distributed"
    second.close()
    assert dask.delayed(sum)([1, 2]).compute() == 3


def test_logs_of_dask_return_with_the_last_cluster(tmp_path):
    logs = io.StringIO()
    handler = logging.StreamHandler(logs)
    logger = logging.getLogger("distributed")
    logger.addHandler(handler)
    try:
        for cluster in [made(tmp_path=tmp_path, security=False) for _ in range(2)]:
            logger.error("unseen")
            cluster.close()
            cluster.close()
        logger.error("seen")
    finally:
        logger.removeHandler(handler)
    assert logs.getvalue() == "seen\n"


def test_in_another_thread_it_is_said_where_dask_jobqueue_can_be_imported(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "dask_jobqueue"]:
        monkeypatch.delitem(sys.modules, name)
    said = []

    def elsewhere():
        with pytest.raises(errors.ParameterError, match=r"import dask_jobqueue there first") as caught:
            jobqueue.cluster_class("slurm")
        said.append(str(caught.value))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert said


def test_what_a_user_reserves_at_lsf_is_not_reserved_again(tmp_path):
    cluster = made("lsf", tmp_path, directives=['-R "rusage[mem=5000]"'], security=False)
    try:
        assert re.findall(r"rusage\S*", cluster.job_script) == ['rusage[mem=5000]"']
    finally:
        cluster.close()


def test_a_job_for_sge_has_its_memory_and_its_cpus_from_the_user(tmp_path):
    for directives, cpus in (([], 1), (["-l mem_free=4G"], 4), (["-pe smp 4"], 4)):
        with pytest.raises(
            errors.ParameterError, match=f"SGE has no standard way to request memory, GPUs, or cpus={cpus}"
        ):
            made("sge", tmp_path, directives=directives, cpus=cpus)
    with pytest.raises(errors.ParameterError, match=re.escape("['-l mem_free=954M', '-pe smp 4']")):
        made("sge", tmp_path)
    made("sge", tmp_path, directives=["-l mem_free=4G"], cpus=1, security=False).close()


@pytest.mark.parametrize("directive", ["-l gpu=1", "-N curate", "-l h_rt=10:00:00"])
def test_options_of_sge_that_are_no_memory_do_not_stand_for_it(directive, tmp_path):
    with pytest.raises(errors.ParameterError, match="SGE has no standard way"):
        made("sge", tmp_path, directives=[directive], cpus=1)


def test_a_job_for_sge_has_its_gpus_from_the_user(tmp_path):
    asked = {"memory": "4GB", "cpus": 1, "gpus": 1, "device_memory": "60GB", "security": False}
    with pytest.raises(errors.ParameterError, match=re.escape("'-l gpu=1'")):
        made("sge", tmp_path, directives=["-l h_vmem=4G"], **asked)
    cluster = made("sge", tmp_path, directives=["-l h_vmem=4G,tesla=1"], **asked)
    try:
        assert "#$ -l h_vmem=4G,tesla=1" in cluster.job_script.splitlines()
    finally:
        cluster.close()


def test_a_worker_leaves_before_its_job_at_lsf_which_counts_minutes(tmp_path):
    cluster = made("lsf", tmp_path, walltime="00:02:59", security=False)
    try:
        assert "#BSUB -W 0:03" in cluster.job_script.splitlines()
        longest = sum(int(option(cluster.job_script, name)[:-1]) for name in ("--lifetime", "--lifetime-stagger"))
    finally:
        cluster.close()
    assert longest < 179


@pytest.mark.usefixtures("commands")
def test_without_a_job_at_the_start_gpus_are_asked_for_after_the_first_task(tmp_path, monkeypatch):
    asked = []

    def verify(client, allowed_bytes):
        asked.append(allowed_bytes)
        if len(asked) == 1:
            raise OSError("a worker left")
        if len(asked) == 2:
            raise errors.BudgetError("too small")

    monkeypatch.setattr(jobs_module, "verified_devices", verify)
    budget = {"gpus": 1, "device_memory": "60GB", "jobs": (0, 2), "security": False}
    ended = TaskEnded("write", None, None, 1.0)
    with made(tmp_path=tmp_path, **budget) as there:
        session = current_session()
        session.emit(ended)  # its worker is gone, and there is no other
        monkeypatch.setattr(there.client, "nthreads", lambda: {"a worker": 1})
        session.emit(Note("retry", "no task is over"))
        assert asked == []
        session.emit(ended)
        with pytest.raises(errors.BudgetError, match="too small"):
            session.emit(ended)
        for _ in range(2):
            session.emit(ended)
    assert asked == [60_000 * MB] * 3


def test_connections_are_encrypted_and_listen_on_one_interface(tmp_path):
    pytest.importorskip("cryptography", reason="needs the tls extra")
    cluster = made(tmp_path=tmp_path)
    try:
        assert cluster.client.scheduler.address.startswith("tls://127.0.0.1:")
        assert cluster.dashboard_link.startswith("http://127.0.0.1:")
        assert "--tls-key " in cluster.job_script
        keys = list(tmp_path.glob(".dask-jobqueue.worker.key.*"))
        assert [key.stat().st_mode & 0o777 for key in keys] == [0o600]
    finally:
        cluster.close()


def test_a_job_has_memory_of_its_own():
    layout = job_layout("4GB", 4, most_jobs=5)
    alone = choose_layout(4000 * MB, cpus=4)
    assert layout.workers == 5 * alone.workers
    assert layout.node_workers == alone.workers
    assert layout.exclusive_bytes == alone.exclusive_bytes
    assert layout.shape.startswith("5 nodes x ")
    least = least_with_workers()
    assert job_layout(least, 1, 1).workers == 1
    with pytest.raises(
        errors.BudgetError, match=f"={least - 1:,} bytes for .* {least:,} bytes: .* memory={size_to_type(least)}"
    ):
        job_layout(least - 1, 1, 1)


def test_what_is_asked_for_is_checked():
    asked = {
        "memory": "2GB",
        "cpus": 1,
        "jobs": 1,
        "walltime": "01:00:00",
        "spill_directory": None,
        "job_directory": "x",
    }
    asked |= dict.fromkeys(("python", "queue", "account", "interface")) | {"directives": (), "prologue": ()}
    with pytest.raises(errors.ParameterError, match="system='cron' is not one of 'slurm', 'pbs', 'lsf', 'sge'"):
        request_jobs("cron", **asked)
    with pytest.raises(errors.ParameterError, match="SGE has no standard way"):
        request_jobs("sge", **asked)
    for walltime, said in (("4h", "is not a time"), ("00:01:00", "less than the minimum of 120 s")):
        with pytest.raises(errors.ParameterError, match=said):
            read_walltime(walltime)
    with pytest.raises(errors.ParameterError, match="walltime=3600 is not a time"):
        read_walltime(3600)
    for jobs in (0, (3, 2), (-1, 2), "3", 2.5, (1, 2, 3), (1, "2")):
        with pytest.raises(errors.ParameterError, match="jobs="):
            read_jobs(jobs)
    assert read_jobs(3) == (3, 3)
    for wrong, said in (
        ({"security": "yes"}, "must be True, False or a"),
        ({"cpus": "4"}, "cpus='4' must be the number of CPUs of each job"),
        ({"directives": "--constraint=avx2"}, r"directives=\['--constraint=avx2'\]"),
        ({"prologue": "module load python"}, r"must be a list of lines, for example prologue=\['module load python'\]"),
        ({"interface": "ib7"}, r"interface='ib7' is not an interface of this machine\. Use one of: .*\blo\b"),
        ({"job_directory": __file__}, f"job_directory='{__file__}' cannot be created"),
        ({"queue_timeout_seconds": "1h"}, "queue_timeout_seconds='1h' must be a number"),
        ({"workdir": 3}, "workdir=3 must be a path"),
        ({"spill_directory": 3}, "spill_directory=3 must be a path"),
        ({"python": 3}, "python=3 must be a path"),
    ):
        with pytest.raises(errors.ParameterError, match=said):
            cdf.job_cluster("slurm", **{"memory": "2GB", "cpus": 1, **wrong})
    with pytest.raises(
        errors.ParameterError, match=r"no parameter queue=\. Name the partition of Slurm with partition="
    ):
        cdf.slurm_cluster(memory="2GB", cpus=1, queue="gpu")
    for wrong, said in (
        ("walltim", "Did you mean 'walltime'"),
        ("skip", "Its parameters are: "),
    ):
        with pytest.raises(TypeError, match=f"^job_cluster has no parameter '{wrong}'.*{said}"):
            cdf.slurm_cluster(memory="2GB", cpus=1, **{wrong: "1"})


@pytest.mark.parametrize(
    ("system", "line"),
    [
        ("slurm", "#SBATCH --gres=gpu:2"),
        ("pbs", "#PBS -l select=1:ncpus=8:mem=7630MB:ngpus=2"),
        ("lsf", '#BSUB -gpu "num=2"'),
    ],
)
def test_jobs_with_gpus_start_workers_of_dask_cuda_within_both_budgets(system, line, tmp_path):
    asked = {"memory": "8GB", "cpus": 8, "gpus": 2, "device_memory": "60GB", "jobs": 3, "security": False}
    cluster = made(system, tmp_path, **asked)
    try:
        script, shown = cluster.job_script, repr(cluster)
        assert cluster.layout.device_bytes == cluster.layout.capacity.device_bytes == 60_000 * MB
        assert (cluster.layout.workers, cluster.layout.node_workers, cluster.layout.threads) == (6, 2, 1)
        assert cluster.layout.spare_cpus == 3
    finally:
        cluster.close()
    assert line in script.splitlines()
    assert "-m dask_cuda.cli tcp://" in script
    assert script.count("ncpus=8" if system == "pbs" else "-n 8" if system == "lsf" else "--cpus-per-task=8") == 1
    assert "--nanny" not in script
    assert (
        "--lifetime" not in script
    )  # dask-cuda has no such option, and takes what it does not know for a file to load
    assert "export DASK_DISTRIBUTED__WORKER__LIFETIME__DURATION=13800s\n" in script
    assert "CURATOR_DF_WORK_BYTES" not in script
    assert option(script, "--nthreads") == "1"
    assert int(option(script, "--memory-limit")[:-1]) * 2 < 8000 * MB * 1.1
    assert (option(script, "--rmm-maximum-pool-size"), option(script, "--device-memory-limit")) == ("60000000000", "0")
    assert "2 per job, 60.00 GB each; cuDF spills" in shown


def test_what_is_asked_of_gpus_is_checked(tmp_path):
    for asked, said in (
        ({"gpus": 1}, "gpus=1 needs device_memory="),
        ({"gpus": 8, "device_memory": "60GB"}, "gpus=8, but cpus=4"),
        ({"gpus": "auto", "device_memory": "60GB"}, "gpus='auto' must be the number of GPUs of each job"),
        ({"device_memory": "60GB"}, "gpus=0 requests none"),
    ):
        with pytest.raises(errors.ParameterError, match=said):
            made(tmp_path=tmp_path, **asked)
    with pytest.raises(errors.BudgetError, match="too little for 4 worker processes \\(one for each GPU of a job\\)"):
        made(tmp_path=tmp_path, memory="800MB", gpus=4, device_memory="60GB")


def memory_lines(**options):
    with contextlib.closing(cdf.slurm_cluster(memory="16GB", cpus=4, security=False, **options)) as cluster:
        script = str(cluster)
    return [line for line in script.splitlines() if line.startswith("#SBATCH --mem") or "exclusive" in line]


@pytest.mark.parametrize(
    ("directive", "options"),
    [
        ("--mem-per-cpu=4000M", {}),
        ("--mem-per-cpu 4G", {}),
        ("--mem-per-cpu=4096", {}),
        ("--mem-per-gpu=40G", {"gpus": 1, "device_memory": "40GB"}),
        ("--mem=0", {}),
        ("--mem=20G", {}),
        ("--exclusive", {}),
        ("--exclusive=user", {}),
    ],
)
def test_a_site_that_refuses_mem_gets_its_own_option_alone(directive, options):
    assert memory_lines() == ["#SBATCH --mem=15259M"]
    assert memory_lines(directives=["--constraint=avx2"]) == ["#SBATCH --mem=15259M"]
    bound = ["#SBATCH --mem=15259M", "#SBATCH --mem-bind=local"]
    assert memory_lines(directives=["--mem-bind=local"]) == bound  # where memory is, not how much
    assert memory_lines(directives=[directive], **options) == [f"#SBATCH {directive}"]


def test_lines_that_the_configuration_leaves_out_stay_out():
    with (
        dask.config.set({"jobqueue.slurm.job-directives-skip": ["-n 1"]}),
        contextlib.closing(
            cdf.slurm_cluster(memory="16GB", cpus=4, security=False, directives=["--mem-per-cpu=4000M"])
        ) as made,
    ):
        script = str(made)
    assert "#SBATCH -n 1" not in script and "--mem=" not in script


@pytest.mark.parametrize(
    ("directive", "options", "said"),
    [
        (
            "--mem-per-cpu=2G",
            {},
            r"requests 8\.59 GB in total from Slurm, less than memory='16\.00 GB' .* --mem-per-cpu=3815M",
        ),
        ("--mem=100", {}, r"requests 105 MB in total from Slurm.* Use --mem=15259M or a smaller memory="),
        ("--mem-per-gpu=1G", {"gpus": 2, "device_memory": "40GB"}, r"2\.15 GB in total.* --mem-per-gpu=7630M"),
    ],
)
def test_less_memory_than_the_budget_is_refused(directive, options, said):
    with pytest.raises(errors.ParameterError, match=said):
        cdf.slurm_cluster(memory="16GB", cpus=4, directives=[directive], **options)


@pytest.mark.parametrize("error", [None, RuntimeError("no scheduler")], ids=["closed", "an error"])
def test_the_scheduler_leaves_no_temporary_folder(tmp_path, monkeypatch, error):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    if error is None:
        made(tmp_path=tmp_path / "jobs").close()
    else:
        monkeypatch.setattr(jobs_module, "withdrawing", raising(error))
        with pytest.raises(RuntimeError, match="no scheduler"):
            made(tmp_path=tmp_path / "jobs")
    assert list(temporary.iterdir()) == []


STEPS = ["watch_streams", "ClosingClient", "JobKeeper", "NodeCompiler", "keep_budget_of_dask", "open_session"]


@pytest.mark.parametrize(
    "fails", ["distributed.SpecCluster.sync", *(f"curator_df.cluster.jobs.{step}" for step in STEPS)]
)
def test_an_interrupt_at_any_step_leaves_no_scheduler_and_no_client(tmp_path, monkeypatch, fails):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    logs, sockets = logging.getLogger("distributed").level, len(listening())
    monkeypatch.setattr(fails, interrupted_sync if fails.endswith("sync") else raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        made(tmp_path=tmp_path / "jobs")
    assert list(temporary.iterdir()) == []
    assert logging.getLogger("distributed").level == logs
    assert len(listening()) == sockets
    assert dask.config.get("scheduler", None) is None
    with pytest.raises(ValueError, match="No client"):
        default_client()


def interrupted_sync(cluster, function, *arguments, sync=SpecCluster.sync, **options):
    """Interrupt a constructor after its scheduler has started."""
    if function.__name__ == "_correct_state":
        raise KeyboardInterrupt
    return sync(cluster, function, *arguments, **options)


def listening():
    return [one for one in psutil.Process().net_connections() if one.status == "LISTEN"]


def raising(error):
    def fail(*_, **__):
        raise error

    return fail
