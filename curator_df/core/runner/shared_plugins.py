# SPDX-License-Identifier: Apache-2.0
"""Plugins for the workers of a scheduler that several connections use, also from several processes.

Dask knows a plugin by its name, and the first connection that closed would remove it from the others. So each connection
registers a plugin under a name of its own. On a worker the first one of a kind makes the change, and the last one undoes it.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable
from typing import Any

from distributed.diagnostics.plugin import NannyPlugin, WorkerPlugin

from curator_df.core.cleaning_up import clean_up

LOG = logging.getLogger("curator_df.core")
OWN_NAME = re.compile(r"curator[_-]df-(?:second-try|kernels|metrics|connected-worker|connected-nanny)-(.+)-[0-9a-f]{8}")
"""Name of a plugin of ours, with the ID of its client, which begins with the class of the client."""
RECONNECT_SECONDS = 60.0
"""Time after which a client that the scheduler removed does not come back; Dask's clients try to reconnect for 30 s."""
HOLDERS = "_curator_df_holders"
"""Attribute of a worker or nanny: the names of the plugins of each kind, and the plugin that has made the change."""


def own_name(name: str, client_id: str) -> str:
    """Return a name that no other plugin has, for a plugin of one client."""
    return f"{name}-{client_id}-{uuid.uuid4().hex[:8]}"


class _Shared:
    """The part of a plugin that counts those of its kind on a worker or nanny."""

    idempotent = False

    def __init__(self, plugin: Any, client_id: str) -> None:
        self._plugin = plugin
        self.name = own_name(plugin.name, client_id)

    @property
    def parts(self) -> str | None:
        """Folder for the parts of compressed files (`core.ranges.stream_parts`), if the plugin names one."""
        return getattr(self._plugin, "parts", None)

    def _enter(self, part: Any) -> None:
        kinds = vars(part).setdefault(HOLDERS, {})
        if self._plugin.name not in kinds:
            self._plugin.setup(part)
            kinds[self._plugin.name] = (self._plugin, set())
        kinds[self._plugin.name][1].add(self.name)

    def _leave(self, part: Any) -> None:
        kinds = vars(part).get(HOLDERS, {})
        changed_by, names = kinds.get(self._plugin.name, (None, set()))
        names.discard(self.name)
        if changed_by is not None and not names:
            del kinds[self._plugin.name]
            changed_by.teardown(part)


class SharedWorkerPlugin(_Shared, WorkerPlugin):  # type: ignore[misc] # Dask's classes have no types
    """Plugin that changes a worker unless another connection has done so; see `share_plugin`."""

    def setup(self, worker: Any) -> None:
        """Change the worker, or count this connection."""
        self._enter(worker)

    def teardown(self, worker: Any) -> None:
        """Restore the worker if no other connection is left."""
        self._leave(worker)


class SharedNannyPlugin(_Shared, NannyPlugin):  # type: ignore[misc]
    """Plugin that changes a nanny unless another connection has done so; see `share_plugin`."""

    def setup(self, nanny: Any) -> None:
        """Change the nanny, or count this connection."""
        self._enter(nanny)

    def teardown(self, nanny: Any) -> None:
        """Restore the nanny if no other connection is left."""
        self._leave(nanny)


def share_plugin(client: Any, plugin: Any) -> Callable[[], None]:
    """Register a plugin that others may have registered too; return the call that takes back this registration alone.

    Parameters
    ----------
    client : distributed.Client
        Client of the connection.
    plugin : WorkerPlugin or NannyPlugin
        Plugin with a name, whose ``setup`` and ``teardown`` are plain functions.
    """
    is_nannys = isinstance(plugin, NannyPlugin)
    shared: Any = (SharedNannyPlugin if is_nannys else SharedWorkerPlugin)(plugin, client.id)

    def undo() -> None:
        unregister(client, shared.name, is_nannys=is_nannys)

    try:
        client.register_plugin(shared)
    except BaseException as exc:
        clean_up(exc, undo)  # it may not have come to the scheduler
        raise
    return undo


def unregister(client: Any, name: str, *, is_nannys: bool = False) -> None:
    """Remove the plugin of a name from the workers or nannies; do nothing if it is gone, or the client has closed.

    A worker that ends meanwhile is an error for Dask, as is a plugin that does not exist, or that a worker lacks because its
    setup failed there.
    """
    if client.status == "running":
        try:
            client.unregister_worker_plugin(name, nanny=is_nannys)
        except (ValueError, KeyError, OSError):
            LOG.debug("the plugin %s could not be removed from all workers", name, exc_info=True)


def remove_left_behind(client: Any) -> None:
    """Remove the plugins of connections whose processes have ended without closing them, as a killed notebook kernel does.

    A client whose connection broke off may reconnect, and needs its plugins then. They stay for `RECONNECT_SECONDS`.
    """
    try:
        found = client.run_on_scheduler(_left_behind)
    except Exception:  # a scheduler may forbid it, or lack curator_df; these plugins then stay until it ends
        LOG.debug("plugins that closed clients have left could not be looked up", exc_info=True)
        return
    for name, is_nannys in found:
        try:
            unregister(client, name, is_nannys=is_nannys)
        except Exception:  # their teardown is not the concern of this connection
            LOG.debug("the plugin %s that a closed client has left could not be removed", name, exc_info=True)


def _left_behind(dask_scheduler: Any) -> list[tuple[str, bool]]:
    plugins = {False: dask_scheduler.worker_plugins, True: dask_scheduler.nanny_plugins}
    named = [
        (match, is_nannys) for is_nannys, names in plugins.items() for match in map(OWN_NAME.fullmatch, names) if match
    ]
    return [(match[0], is_nannys) for match, is_nannys in named if _is_gone(dask_scheduler, match[1])]


def _is_gone(dask_scheduler: Any, client_id: str) -> bool:
    """Return whether a client is not connected, and was not until a short time ago."""
    if client_id in dask_scheduler.clients:
        return False
    events = dask_scheduler.get_events(client_id)
    removed = [when for when, event in events if isinstance(event, dict) and event.get("action") == "remove-client"]
    return time.time() - max(removed, default=0.0) > RECONNECT_SECONDS
