# SPDX-License-Identifier: Apache-2.0
"""What is logged after the connection to the scheduler was lost."""

from __future__ import annotations

import asyncio
import logging

from curator_df.core.runner.dispatch import _NotOfLost


class Client:
    async def _reconnect(self):
        raise asyncio.CancelledError

    async def gather(self):
        raise asyncio.CancelledError


def record_of(task):
    try:
        asyncio.run(task)
    except asyncio.CancelledError as exc:
        return logging.LogRecord(
            "distributed.client", logging.ERROR, "", 0, "", (), (type(exc), exc, exc.__traceback__)
        )


def test_only_the_reconnection_of_the_lost_client_is_left_out():
    lost, other = Client(), Client()
    wanted = _NotOfLost(lost)
    assert not wanted.filter(record_of(lost._reconnect()))
    assert wanted.filter(record_of(other._reconnect()))
    assert wanted.filter(record_of(lost.gather()))
    assert wanted.filter(logging.LogRecord("distributed.client", logging.ERROR, "", 0, "else", (), None))
