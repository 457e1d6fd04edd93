# SPDX-License-Identifier: Apache-2.0
"""Find the jobs that have ended with the command of the batch system. No job is submitted or cancelled here."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection
from dataclasses import dataclass

ANSWER_SECONDS = 30.0
"""Seconds after which a command counts as not answering."""


@dataclass(frozen=True)
class Question:
    """Query for jobs of a batch system, and the format of its answer."""

    command: tuple[str, ...]
    """Command to run, with the jobs' numbers at the end if it accepts any."""
    joined_by: str | None
    """Separator of the numbers within one word; None for a word each, empty if all jobs are listed."""
    row: re.Pattern[str]
    """Pattern of a job's number and state in a line of the answer."""
    ended: re.Pattern[str]
    """Pattern of the states of jobs that will not run (again)."""
    unknown: re.Pattern[str]
    """Pattern of the message for a forgotten number, with which the command fails."""


SLURM_ENDED = "BOOT_FAIL|CANCELLED|COMPLETED|DEADLINE|FAILED|NODE_FAIL|OUT_OF_MEMORY|PREEMPTED|REVOKED|TIMEOUT"
QUESTIONS = {
    "slurm": Question(
        ("squeue", "--noheader", "--states=all", "--format=%A %T", "--jobs"),
        joined_by=",",
        row=re.compile(r"^(\d+) (\w+)", re.MULTILINE),
        ended=re.compile(SLURM_ENDED),
        unknown=re.compile("Invalid job id"),
    ),
    # Job ID, name, user, time, state, queue.
    "pbs": Question(
        ("qstat",),
        joined_by=None,
        row=re.compile(r"^(\d+)\S* .*\s(\w)\s+\S+\s*$", re.MULTILINE),
        ended=re.compile("[CFX]"),
        unknown=re.compile("Unknown Job Id|Job has finished"),
    ),
    # JOBID USER STAT QUEUE ...
    "lsf": Question(
        ("bjobs", "-w"),
        joined_by=None,
        row=re.compile(r"^(\d+)\s+\S+\s+(\w+)", re.MULTILINE),
        ended=re.compile("DONE|EXIT"),
        unknown=re.compile("is not found"),
    ),
    # job-ID prior name user state ...: all jobs of the user that have not ended. A job that could not be started (its folder or
    # its shell is not on the node) is kept in error, Eqw, until somebody clears it; one with a d is being deleted.
    "sge": Question(
        ("qstat",),
        joined_by="",
        row=re.compile(r"^\s*(\d+)\s+\S+\s+\S+\s+\S+\s+(\w+)", re.MULTILINE),
        ended=re.compile(r"\w*[Ed]\w*"),
        unknown=re.compile("do not exist"),
    ),
}


def ended_jobs(system: str, numbers: Collection[str]) -> dict[str, str]:
    """Return which of these jobs have ended, with their states; empty if the batch system does not answer.

    Parameters
    ----------
    system : str
        The batch system, one of `curator_df.cluster.batch.BatchSystem`.
    numbers : collection of str
        Numbers of the jobs.

    Returns
    -------
    dict of str to str
        State of each job, in the batch system's terms; empty for a forgotten one.
    """
    question = QUESTIONS[system]
    named = (
        list(numbers) if question.joined_by is None else [question.joined_by.join(numbers)] * bool(question.joined_by)
    )
    try:
        answer = subprocess.run(
            [*question.command, *named], capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    if answer.returncode and not question.unknown.search(answer.stderr):
        return {}
    states = dict(question.row.findall(answer.stdout))
    ended = {number: states.get(number, "") for number in numbers}
    return {number: state for number, state in ended.items() if not state or question.ended.fullmatch(state)}
