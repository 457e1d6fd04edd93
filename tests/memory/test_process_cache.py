# SPDX-License-Identifier: Apache-2.0
"""What steps keep in workers is released when a run ends, and the packages that stay are counted in later plans."""

import contextlib
from unittest import mock

import pytest

import curator_df as cdf
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.program import Step
from curator_df.core.ranges.blocks import BlockKernel
from curator_df.core.ranges.price import Price
from curator_df.memory.process_cache import release_held, released_after


def session():
    one = mock.Mock()
    one.client.status = "running"
    one.client.run.return_value = {}
    return one


def step(**price):
    kernel = BlockKernel("step", len, price=Price(**price))
    return Step("step", kernel, kernel.price)


def forget():
    """Stand for what a run forgets at its end."""


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_step_holds_is_released_and_its_packages_are_counted(fails):
    here, steps = session(), [step(), step(held_bytes=5_000, libraries={"torch": 3_000})]
    with mock.patch.object(here.client, "run", return_value={}) as run:
        ends = pytest.raises(KeyboardInterrupt) if fails else contextlib.nullcontext()
        with ends, released_after(here, steps, forget):
            if fails:
                raise KeyboardInterrupt
        assert [call.args[0] for call in run.call_args_list] == [release_held, forget]
    here.keep.assert_called_once_with({"torch": 3_000})


def test_steps_that_hold_nothing_cost_no_call():
    here = session()
    with released_after(here, [step(), step(fixed_bytes=9)], forget):
        pass
    here.client.run.assert_not_called()


def test_functions_of_the_user_may_hold_something(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    docs = cdf.read_jsonl(tmp_path / "a.jsonl").curate.keep_where(lambda block: block["text"].notna())
    here = session()
    with released_after(here, lower(docs).steps, forget):
        pass
    assert here.client.run.call_args_list[0].args[0] is release_held
