# SPDX-License-Identifier: Apache-2.0
"""Folders for working files below a workdir that a user named: made when needed, deleted at the end or by the next cluster."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from curator_df.cluster.spill_folder import WorkingFolder
from curator_df.errors import CuratorError

KILLED = """
import os, signal, sys
from pathlib import Path
from curator_df.cluster.spill_folder import WorkingFolder
folder = WorkingFolder(sys.argv[1])
Path(folder.path(), "looks").mkdir()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_it_is_made_when_it_is_needed_and_goes_at_the_end(tmp_path):
    (tmp_path / "work" / "looks").mkdir(parents=True)
    folder = WorkingFolder(str(tmp_path / "work"))
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["looks"]
    made = folder.path()
    assert made == folder.path()
    assert len(list((tmp_path / "work").iterdir())) == 2
    folder.delete()
    folder.delete()
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["looks"]


def test_two_clusters_have_a_folder_each(tmp_path):
    first, second = WorkingFolder(str(tmp_path)), WorkingFolder(str(tmp_path))
    kept, deleted = first.path(), second.path()
    assert kept != deleted
    second.delete()
    assert [str(path) for path in tmp_path.iterdir()] == [kept]
    first.delete()


def test_what_a_killed_process_left_is_deleted_by_the_next(tmp_path):
    living = WorkingFolder(str(tmp_path))
    kept = living.path()
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob("*/looks"))) == 1
    WorkingFolder(str(tmp_path))
    assert [str(path) for path in tmp_path.iterdir()] == [kept]
    living.delete()


def test_a_workdir_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CuratorError, match=r"file/below cannot be written to"):
        WorkingFolder(str(tmp_path / "file" / "below")).path()


def test_a_store_gets_a_name(tmp_path):
    folder = WorkingFolder("memory://work/")
    assert folder.path().startswith("memory://work/curator-df-")
    assert folder.path() == folder.path()
    folder.delete()
