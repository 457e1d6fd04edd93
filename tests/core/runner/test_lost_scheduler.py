# SPDX-License-Identifier: Apache-2.0
"""What is logged after the connection to the scheduler was lost."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest
from distributed.client import CancelledFuturesGroup, FutureCancelledError, FuturesCancelledError

from curator_df.core.runner.lost_scheduler import LOGGER, REASON, NotOfLost, expect_loss, require_open, tells_of_loss
from curator_df.errors import SchedulerLostError


class Client:
    def __init__(self, status="running"):
        self.status = status

    async def _reconnect(self):
        raise asyncio.CancelledError

    async def gather(self):
        raise asyncio.CancelledError


def record(message="", exc_info=None):
    return logging.LogRecord(LOGGER, logging.ERROR, "", 0, message, (), exc_info)


def record_of(task):
    try:
        asyncio.run(task)
    except asyncio.CancelledError as exc:
        return record(exc_info=(type(exc), exc, exc.__traceback__))


def test_only_the_reconnection_of_the_lost_client_is_left_out():
    lost, other = Client(), Client()
    wanted = NotOfLost(lost)
    assert not wanted.filter(record_of(lost._reconnect()))
    assert wanted.filter(record_of(other._reconnect()))
    assert wanted.filter(record_of(lost.gather()))
    assert wanted.filter(record("else"))


@pytest.mark.parametrize("status", ["connecting", "closing", "closed"])
def test_once_it_is_lost_what_the_client_still_says_of_it_is_left_out(status):
    lost, other = Client(), Client()
    wanted, gave_up = NotOfLost(lost), record("Failed to reconnect to scheduler after 30.00 seconds, closing client")
    assert wanted.filter(gave_up)
    lost.status = status
    assert not wanted.filter(gave_up)
    assert not wanted.filter(record_of(lost.gather()))
    assert wanted.filter(record_of(other.gather()))
    assert wanted.filter(record("else"))
    assert wanted.filter(record("malformed", exc_info=True))


def test_each_client_has_one_filter_and_none_when_it_is_gone():
    logger = logging.getLogger(LOGGER)
    gc.collect()
    client = Client()
    expect_loss(client)  # which forgets the clients of earlier tests that are gone
    before = len(logger.filters) - 1
    for _ in range(2):
        expect_loss(client)
    assert len(logger.filters) == before + 1
    del client
    gc.collect()
    other = Client()
    expect_loss(other)
    assert len(logger.filters) <= before + 1


def test_the_reason_of_a_cancelled_future_tells_of_the_loss():
    lost, other = FutureCancelledError("key", REASON), FutureCancelledError("key", "unknown")
    assert tells_of_loss(lost)
    assert not tells_of_loss(other)
    assert not tells_of_loss(None)
    assert tells_of_loss(FuturesCancelledError([CancelledFuturesGroup([lost], REASON)]))
    assert not tells_of_loss(FuturesCancelledError([CancelledFuturesGroup([other], "unknown")]))


@pytest.mark.parametrize("status", ["closing", "closed"])
def test_a_closed_client_is_refused_and_one_that_connects_again_is_not(status):
    client = Client(status)
    client.scheduler = None
    with pytest.raises(SchedulerLostError, match=r"its address was lost.*Begin again"):
        require_open(client, "Begin again")
    require_open(Client("connecting"), "Begin again")
