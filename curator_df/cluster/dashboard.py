# SPDX-License-Identifier: Apache-2.0
"""Dask's dashboard of a cluster on this machine: its address, and its pages, whose packages are imported at the first visit.

Bokeh takes 0.6 s of CPU and 19 MB in the process of the scheduler, and most runs end before anybody looks. The memory is reserved
when the cluster starts, so that a visit in the middle of a run takes none that tasks need.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Callable
from typing import Any

from distributed import LocalCluster
from tornado.web import Application, RequestHandler

PACKAGES = "distributed.dashboard.scheduler"
"""Module that imports the packages of the pages."""
DASHBOARD_BYTES = 22_000_000
"""Memory that the first visit takes in the process of the scheduler. Measured: 18.9 MB, resident and as the data limit counts."""


def dashboard_at(host: str, port: int) -> Any:
    """Return an address for pages as Dask takes it: its text form has no place for the colons of IPv6."""
    return [(host, port)] if ":" in host else f"{host}:{port}"


def without_pages_of_workers(cluster: LocalCluster) -> LocalCluster:
    """Make workers serve no pages of their own, whose packages take 0.4 s and 20 MB in each; the dashboard has their figures."""
    cluster.new_spec["options"]["dashboard"] = False
    return cluster


def open_at_first_visit(cluster: LocalCluster, opened: Callable[[], None]) -> int:
    """Serve the dashboard of a cluster whose scheduler was started without it, from its first request on.

    Return the bytes that this process will then need in addition; ``opened`` is called when it has taken them.
    """

    async def add() -> None:
        _Pages(cluster.scheduler, opened)

    cluster.sync(add)
    return 0 if PACKAGES in sys.modules else DASHBOARD_BYTES


class _Pages:
    """The pages of a scheduler; until they are opened, an application without any stands in for them."""

    def __init__(self, scheduler: Any, opened: Callable[[], None]) -> None:
        self._scheduler, self._opened, self._opening = scheduler, opened, asyncio.Lock()
        self._stand_in = Application([(".*", _FirstVisit, {"pages": self})])
        scheduler.http_application.add_application(self._stand_in)

    async def open(self) -> None:
        """Import the packages, in a thread while the scheduler goes on, and serve the pages; do nothing if they are open."""
        async with self._opening:
            application = self._scheduler.http_application
            if self._stand_in in application.applications:
                dashboard = await asyncio.to_thread(importlib.import_module, PACKAGES)
                dashboard.connect(application, self._scheduler.http_server, self._scheduler, prefix="/")
                application.applications.remove(self._stand_in)
                self._opened()


class _FirstVisit(RequestHandler):
    """Opens the pages, and sends the visitor to the requested one."""

    def initialize(self, pages: _Pages) -> None:
        """Keep the pages (called by tornado)."""
        self._pages = pages

    async def get(self) -> None:
        """Answer any path."""
        await self._pages.open()
        self.redirect(path_here(self.request.uri or ""))

    head = get


def path_here(uri: str) -> str:
    r"""Return a requested path as one of this server: browsers read a second slash or a backslash as another host.

    Examples
    --------
    >>> path_here("/status"), path_here("//example.org/x"), path_here("/\\example.org")
    ('/status', '/example.org/x', '/example.org')
    """
    return "/" + uri.lstrip("/\\")
