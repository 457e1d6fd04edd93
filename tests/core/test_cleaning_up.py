# SPDX-License-Identifier: Apache-2.0
"""The first error is the one that is raised; what fails while it is cleaned up after is a note on it."""

import threading

import pytest
from distributed import SpecCluster, Status

from curator_df.cluster import worker_processes
from curator_df.core.cleaning_up import clean_up, undoing
from curator_df.core.ranges.journal import Journal
from curator_df.files.storage import Folder

NOTE = ["Cleaning up afterwards failed, too (OSError: gone)"]


def fails():
    raise OSError("gone")


def test_every_action_is_called_and_the_first_error_is_raised():
    called = []
    with pytest.raises(OSError, match="gone"):
        clean_up(None, fails, lambda: called.append(1), fails)
    first = ValueError("first")
    clean_up(first, fails, lambda: called.append(2))
    assert (called, first.__notes__) == ([1, 2], NOTE)


def test_what_is_undone_after_an_error_does_not_replace_it():
    def start():
        with undoing() as undo:
            undo.callback(fails)
            raise ValueError("first")

    with pytest.raises(ValueError, match="first") as caught:
        start()
    assert caught.value.__notes__ == NOTE
    with undoing() as undo:
        undo.callback(fails)
        undo.pop_all()


def test_an_output_that_cannot_be_released_does_not_hide_the_error_of_its_run(tmp_path, monkeypatch):
    journal = Journal(Folder(str(tmp_path)))
    monkeypatch.setattr(journal._owner, "release", fails)
    with pytest.raises(ValueError, match="first") as caught, journal:
        raise ValueError("first")
    assert caught.value.__notes__ == NOTE
    assert journal._lock.closed


class Unstarted(SpecCluster):
    """A cluster of another library, whose start may fail."""

    def __init__(self, why=None):
        self.status, self._cluster_info = Status.created, {"name": "unstarted"}
        SpecCluster._instances.add(self)
        if why is not None:
            raise why


def test_only_the_cluster_whose_own_start_failed_is_closed(monkeypatch):
    closed, others = [], []
    monkeypatch.setattr(worker_processes, "_close_unfinished", lambda cluster, _: closed.append(cluster) or fails())

    def start():
        with worker_processes.closing_unfinished():
            thread = threading.Thread(target=lambda: others.append(Unstarted()))
            thread.start()
            thread.join()
            Unstarted(ValueError("first"))

    with pytest.raises(ValueError, match="first") as caught:
        start()
    assert len(closed) == 1
    assert closed[0] is not others[0]
    assert caught.value.__notes__ == NOTE
    for cluster in (*closed, *others):
        cluster.status = Status.closed  # so that Dask does not warn of it
