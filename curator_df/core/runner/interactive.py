# SPDX-License-Identifier: Apache-2.0
"""Dask's own operations under the budget of a session: ``compute``, ``head``, ``len``, sorts, merges, shuffles.

While a session is open, results are returned in pieces (`results`), tasks that run out of memory are repeated exclusively on
their worker (`core.tasks.second_try`), and tables with deferred operations can be computed and shown (`deferred`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from curator_df.core.ranges.stream_parts import PARTS_FOLDER
from curator_df.core.runner.deferred import look_at_deferred, stop_looking
from curator_df.core.runner.results import return_as_dask_does, return_in_pieces
from curator_df.core.runner.session import Session
from curator_df.core.tasks.second_try import PLUGIN_NAME, SecondTry


def keep_budget_of_dask(
    session: Session, *, owns_workers: bool, spool_on: Callable[[Session], Any], working: Any = None
) -> Callable[[], None]:
    """Make Dask's operations on a session keep its budget; return the call that undoes it.

    Parameters
    ----------
    session : Session
        Session with a running client.
    owns_workers : bool
        Whether the workers end with the session, so that nothing needs to be undone on them.
    spool_on : callable
        Function that routes what runs cannot stream through working files (`curator_df.io.output.spool`); it returns an object to
        close, or None.
    working : object, optional
        Where working files go (``path()``), and how they are deleted (``delete()``); by default the ``workdir`` of the session.
    """
    if working is not None:
        session.working_folder = working.path
    client = session.client
    parts = None if session.workdir is None or working is not None else f"{session.workdir}/{PARTS_FOLDER}"
    client.register_plugin(SecondTry(session.layout.work_bytes, parts))
    return_in_pieces(session)
    looks, spool = look_at_deferred(session), spool_on(session)

    def undo() -> None:
        stop_looking(looks)
        if spool is not None:
            spool.close()
        if working is not None:
            working.delete()
        return_as_dask_does(client)
        if not owns_workers and client.status == "running":
            client.unregister_worker_plugin(PLUGIN_NAME)

    return undo
