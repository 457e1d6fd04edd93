# SPDX-License-Identifier: Apache-2.0
"""A receipt with something of everything, for the tests of what is made of receipts."""

import dataclasses

from curator_df.receipts.receipt import ExchangeReceipt, Receipt, StepReceipt

STEPS = (
    StepReceipt("read", 1_000, 1_000, 2.0),
    StepReceipt(
        "keep_profile", 1_000, 700, 30.0, {"too_short": 200, "no <b>stop</b> words": 100}, {"texts_seen": 1_000}
    ),
    StepReceipt("drop_exact_duplicates", 700, 600, 1.0, {"exact_duplicate": 100}),
    StepReceipt("write", 600, 600, 5.0),
)


def receipt(**changes):
    """Return it, with changes."""
    one = Receipt(
        "out & more",
        rows_read=1_000,
        rows_written=600,
        files=4,
        input_bytes=40_000_000,
        output_bytes=10_000_000,
        steps=[dataclasses.replace(step) for step in STEPS],
        ranges=40,
        seconds=20.0,
        allowed_bytes=1_000_000_000,
        projected_bytes=800_000_000,
        measured_bytes=700_000_000,
        settings={"layout": "2 worker processes x 1 thread: enough for 2 processes"},
        arguments={"memory": 1_000_000_000, "cpus": 2, "blocksize": 16_000_000, "on_error": "quarantine"},
        tasks_at_a_time=2,
        timeline=[(5.0, 300_000_000), (10.0, 700_000_000), (20.0, 500_000_000)],
    )
    return dataclasses.replace(one, **changes)


EXCHANGE = ExchangeReceipt(
    step="drop_exact_duplicates",
    keys=700,
    unique=600,
    hash_ranges=4,
    skew=1.2,
    projected_bytes=9,
    key_bytes=8,
    drop_bytes=7,
    spilled_bytes=0,
    seconds=1.5,
)
