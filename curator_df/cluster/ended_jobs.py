# SPDX-License-Identifier: Apache-2.0
"""Which jobs have ended, in the words of the batch system's own command. Nothing is sent or cancelled here."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection
from dataclasses import dataclass

ANSWER_SECONDS = 30.0
"""A command that takes longer has not answered."""


@dataclass(frozen=True)
class Question:
    """How a batch system is asked for jobs, and how its answer is read."""

    command: tuple[str, ...]
    """What is run, with the jobs' numbers at the end where it takes any."""
    joined_by: str | None
    """What stands between the numbers in one word; None where each is a word of its own, empty where all jobs are listed."""
    row: re.Pattern[str]
    """A job's number and its state, in a line of the answer."""
    ended: re.Pattern[str]
    """States of jobs that will not run (again)."""
    unknown: re.Pattern[str]
    """What it says, though it then fails, of a number that it has forgotten."""


SLURM_ENDED = "BOOT_FAIL|CANCELLED|COMPLETED|DEADLINE|FAILED|NODE_FAIL|OUT_OF_MEMORY|PREEMPTED|REVOKED|TIMEOUT"
QUESTIONS = {
    "slurm": Question(
        ("squeue", "--noheader", "--states=all", "--format=%A %T", "--jobs"),
        joined_by=",",
        row=re.compile(r"^(\d+) (\w+)", re.MULTILINE),
        ended=re.compile(SLURM_ENDED),
        unknown=re.compile("Invalid job id"),
    ),
    # Job id, name, user, time, state, queue.
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
    # job-ID prior name user state ...: of all jobs of the user that have not ended. A job that could not be started (its folder
    # or its shell is not on the node) is kept in error, Eqw, until somebody clears it; one with a d is being deleted.
    "sge": Question(
        ("qstat",),
        joined_by="",
        row=re.compile(r"^\s*(\d+)\s+\S+\s+\S+\s+\S+\s+(\w+)", re.MULTILINE),
        ended=re.compile(r"\w*[Ed]\w*"),
        unknown=re.compile("do not exist"),
    ),
}


def ended_jobs(system: str, numbers: Collection[str]) -> dict[str, str]:
    """Return which of these jobs have ended, and their states; none where the batch system does not answer.

    Parameters
    ----------
    system : str
        The batch system, as `curator_df.cluster.batch.BatchSystem` names it.
    numbers : collection of str
        The jobs, by the numbers that it gave them.

    Returns
    -------
    dict of str to str
        The batch system's word for the state of each; empty for one that it has forgotten.
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
