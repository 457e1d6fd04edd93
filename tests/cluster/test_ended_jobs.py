# SPDX-License-Identifier: Apache-2.0
"""What batch systems say of jobs, as their manuals show it, by commands that say nothing else.

`test_slurm.py` and `test_grid_engine.py` ask real ones.
"""

import pytest

from curator_df.cluster import job_keeper as ended_jobs_module
from curator_df.cluster.job_keeper import ended_jobs

PBS = """\
Job id            Name             User              Time Use S Queue
----------------  ---------------- ----------------  -------- - -----
11.pbs            curator-df       ann               00:01:02 R workq
12.pbs            curator-df       ann                      0 Q workq
13.pbs            curator-df       ann               00:00:00 C workq
"""
LSF = """\
JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME
11      ann     RUN   normal     login       node1       curator-df Nov 21 10:00
12      ann     PEND  normal     login       -           curator-df Nov 21 10:00
13      ann     EXIT  normal     login       node1       curator-df Nov 21 10:00
"""
SGE = """\
job-ID  prior   name       user         state submit/start at     queue                          slots ja-task-ID
-----------------------------------------------------------------------------------------------------------------
     11 0.55500 curator-df ann          r     11/21/2026 10:00:00 all.q@node1                        4
     12 0.00000 curator-df ann          qw    11/21/2026 10:00:00                                    4
     13 0.25000 curator-df ann          Eqw   11/21/2026 10:00:00                                    4
     15 0.55500 curator-df ann          dr    11/21/2026 10:00:00 all.q@node1                        4
"""
SLURM = "11 RUNNING\n12 PENDING\n13 CANCELLED\n"


def say(folder, monkeypatch, name, stdout, stderr="", code=0):
    """Make this command the only one there is."""
    (folder / "out").write_text(stdout)
    (folder / "err").write_text(stderr)
    command = folder / name
    command.write_text(
        f'#!/bin/sh\necho "$@" > {folder}/asked\n/bin/cat {folder}/out\n/bin/cat {folder}/err >&2\nexit {code}\n'
    )
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.parametrize(
    ("system", "command", "stdout", "forgotten", "asked", "state"),
    [
        ("slurm", "squeue", SLURM, "", "--noheader --states=all --format=%A %T --jobs 11,12,13,14", "CANCELLED"),
        ("pbs", "qstat", PBS, "qstat: Unknown Job Id 14.pbs", "11 12 13 14", "C"),
        ("pbs", "qstat", PBS, "qstat: 14.pbs Job has finished, use -x or -H to obtain historical", "11 12 13 14", "C"),
        ("lsf", "bjobs", LSF, "Job <14> is not found", "-w 11 12 13 14", "EXIT"),
        ("sge", "qstat", SGE, "", "", "Eqw"),
    ],
)
def test_jobs_that_ended_or_are_forgotten_are_told_from_those_that_run_or_wait(
    system, command, stdout, forgotten, asked, state, tmp_path, monkeypatch
):
    say(tmp_path, monkeypatch, command, stdout, forgotten, code=1 if forgotten else 0)
    assert ended_jobs(system, ["11", "12", "13", "14"]) == {"13": state, "14": ""}
    assert (tmp_path / "asked").read_text().strip() == asked


def test_a_job_of_sge_that_is_being_deleted_will_not_run(tmp_path, monkeypatch):
    say(tmp_path, monkeypatch, "qstat", SGE)
    assert ended_jobs("sge", ["11", "15"]) == {"15": "dr"}


def test_the_one_job_that_is_asked_for_may_be_forgotten(tmp_path, monkeypatch):
    say(tmp_path, monkeypatch, "squeue", "", "slurm_load_jobs error: Invalid job id specified", code=1)
    assert ended_jobs("slurm", ["14"]) == {"14": ""}


def test_without_an_answer_no_job_has_ended(tmp_path, monkeypatch):
    say(tmp_path, monkeypatch, "squeue", "", "slurm_load_jobs error: Unable to contact slurm controller", code=1)
    assert ended_jobs("slurm", ["11"]) == {}
    assert ended_jobs("lsf", ["11"]) == {}  # there is no such command
    (tmp_path / "qstat").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    (tmp_path / "qstat").chmod(0o755)
    monkeypatch.setattr(ended_jobs_module, "ANSWER_SECONDS", 0.1)
    assert ended_jobs("sge", ["11"]) == {}
