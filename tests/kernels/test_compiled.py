# SPDX-License-Identifier: Apache-2.0
"""Kernels are compiled when they are called, and helpers are compiled into them."""

import gc
import operator
import os
import subprocess
import sys
from collections import Counter

import llvmlite.ir
import numba.core.event as events
import numpy as np
import pytest
from numba import types
from numba.core.errors import NumbaError
from numba.core.typing.context import BaseContext

from curator_df.kernels.compiling.compiled import borrowing, chosen, helper, inlined, kernel
from curator_df.kernels.compiling.compiled import types as types_of_kernels
from curator_df.kernels.compiling.dispatchers import KernelCache

IMPORT_ALL = """
import importlib, pkgutil
import numba.core.event as events
import curator_df.kernels
with events.install_recorder("numba:compile") as compiled:
    for module in pkgutil.walk_packages(curator_df.kernels.__path__, "curator_df.kernels."):
        if ".device." not in module.name:
            importlib.import_module(module.name)
print(len(compiled.buffer))
"""


def test_importing_compiles_and_loads_nothing(tmp_path):
    environment = {**os.environ, "CURATOR_DF_CACHE": str(tmp_path / "cache")}
    assert subprocess.check_output([sys.executable, "-c", IMPORT_ALL], env=environment, text=True) == "0\n"
    assert not (tmp_path / "cache").exists()


USE_32_BITS = """
import numpy as np, pandas as pd
from curator_df.kernels.minhash import signatures as minhash_bands
from curator_df.kernels.minhash import sketch as minhash_sketch
from curator_df.kernels.minhash.signatures import band_hashes
from curator_df.kernels.minhash.scheme import Scheme
band_hashes(pd.Series(["some text", "more"], dtype="string[pyarrow]"), Scheme("words", 1, 2, 2))
values = [value for module in (minhash_sketch, minhash_bands) for value in vars(module).values()]
made = [value._made for value in values if type(value).__name__ == "LazyFunction"]
print([one.name for one in made if type(one).__name__ == "KernelDispatcher" and one.overloads])
"""


def test_a_scheme_of_words_and_32_bits_takes_nothing_of_characters_or_64():
    used = "['minhash.sketch.sketch_words_32', 'minhash.signatures.hash_bands_32']\n"
    assert subprocess.check_output([sys.executable, "-c", USE_32_BITS], text=True) == used


@inlined
def doubled(number):
    return 2 * number


@helper
def negative(number):
    return -number


def _signed(number, is_negative):
    return negative_of if isinstance(is_negative, types.Boolean) else positive_of


@helper
def negative_of(number, is_negative):
    return negative(number) if is_negative else number


@helper
def positive_of(number, is_negative):
    return number


@chosen(_signed)
def signed(number, is_negative):
    """Return the number, negative if a boolean says so. For compiled code only."""
    raise TypeError("signed cannot be called from Python")


@helper
def total(numbers, factor):
    found = 0
    for number in numbers:
        found += doubled(number) * factor
    return found


@kernel(types.int64(types.Array(types.int64, 1, "C", readonly=True), types.int64))
def doubled_total(numbers, factor):
    return signed(signed(total(numbers, factor), factor > 100), 1)


@pytest.fixture(autouse=True)
def no_file(monkeypatch):
    """These kernels are no part of the package, which has no source of them."""
    monkeypatch.setattr(KernelCache, "load_overload", lambda self, sig, target_context: None)
    monkeypatch.setattr(KernelCache, "save_overload", lambda self, sig, data: None)
    monkeypatch.setattr("curator_df.kernels.compiling.compile_cache.is_compiled", lambda name: True)


def test_a_kernel_is_compiled_for_the_types_that_it_declares_alone():
    numbers = np.arange(5)
    assert doubled_total(numbers, 3) == 60
    numbers.flags.writeable = False
    assert doubled_total(numbers, True) == 20
    assert len(doubled_total.signatures) == 1
    with pytest.raises(TypeError, match="No matching definition"):
        doubled_total(np.arange(5.0), 3)


def test_a_function_stands_for_others_by_the_types_of_its_arguments():
    assert doubled_total(np.arange(5), 101) == -2020
    assert len(negative_of.overloads) == len(positive_of.overloads) == 1
    with pytest.raises(TypeError, match="signed cannot be called from Python"):
        signed(1, 2)


def test_helpers_have_no_machine_code_of_their_own_and_can_be_called_from_python():
    doubled_total(np.arange(5), 3)
    [compiled] = total.overloads.values()
    assert not hasattr(compiled.library, "_compiled_object") or compiled.library._compiled_object is None
    assert total(np.arange(5), 3) == total.py_func(np.arange(5), 3) == 60
    assert total(np.arange(5.0), 0.5) == 10.0
    assert doubled(21) == 42


def total_of_new_numbers(decorate):
    """Return a kernel that creates an array, and counts what a helper with this decorator finds in parts of it."""

    @helper
    def last(numbers, size):
        part = numbers[-size:]
        return part[0]

    @decorate
    def total_of_parts(numbers):
        found = 0
        for size in range(1, len(numbers)):
            found += last(numbers[: size + 1], size)
        return found

    @kernel(types.int64(types.int64))
    def total_of_new(count):
        numbers = np.arange(count)
        return total_of_parts(numbers)

    return total_of_new, total_of_parts


@pytest.mark.parametrize(("decorate", "counts"), [(helper, True), (borrowing, False)])
def test_numba_counts_no_references_in_what_borrows_arrays(decorate, counts):
    total_of_new, total_of_parts = total_of_new_numbers(decorate)
    assert total_of_new(6) == 1 + 1 + 1 + 1 + 1
    [compiled] = total_of_parts.overloads.values()
    assert ("@NRT_incref" in compiled.library.get_llvm_str()) == counts


@pytest.mark.parametrize("is_first", [True, False], ids=["borrowing first", "counting first"])
@pytest.mark.parametrize("returns_array", [True, False])
def test_a_helper_that_returns_an_array_is_not_shared_with_what_borrows_arrays(returns_array, is_first):
    @helper
    def itself(numbers):
        return numbers

    @helper
    def first_two(numbers):
        return numbers[0], numbers[1]

    given = itself if returns_array else first_two

    @borrowing
    def borrowed(numbers):
        return given(numbers)[1]

    @helper
    def counted(numbers):
        return given(numbers)[1]

    one, other = (borrowed, counted) if is_first else (counted, borrowed)

    @kernel(types.int64(types.int64))
    def both(count):
        numbers = np.arange(count)
        return one(numbers) + other(numbers)

    if returns_array:
        with pytest.raises((TypeError, NumbaError), match="itself returns an array"):
            both(6)
    else:
        assert both(6) == 2


def polynomial():
    """Return a kernel that nothing has compiled, with a helper, a loop, and operators that occur several times."""

    @helper
    def power(number, exponent):
        found = 1
        for _ in range(exponent):
            found = found * number
        return found

    @kernel(types.int64(types.int64, types.int64))
    def value(number, terms):
        found = 0
        for term in range(terms):
            found = found + power(number, term) * (term + 1)
        return found

    return value


def test_compiling_takes_only_the_steps_that_a_function_needs(monkeypatch):
    sizes, resolve, asked = [], BaseContext.resolve_function_type, Counter()
    get_abi_size = llvmlite.ir.Type.get_abi_size
    monkeypatch.setattr(llvmlite.ir.Type, "get_abi_size", lambda *args: sizes.append(args) or get_abi_size(*args))

    def count(self, func, args, kws):
        asked.update([(func, tuple(args))] if func in vars(operator).values() else [])
        return resolve(self, func, args, kws)

    monkeypatch.setattr(BaseContext, "resolve_function_type", count)
    with events.install_recorder("numba:run_pass") as passed:
        assert polynomial()(3, 4) == 1 + 2 * 3 + 3 * 9 + 4 * 27
    steps = {event.data["name"].partition(" ")[0] for _, event in passed.buffer}
    assert steps >= {"nopython_type_inference", "native_lowering"}
    assert not steps & {"with_lifting", "inline_closure_likes", "literal_unroll"}
    assert not sizes
    assert not asked or max(asked.values()) == 1


def test_expressions_of_arrays_and_inner_functions_are_compiled_too():
    @kernel(types.int64(types.Array(types.int64, 1, "C", readonly=True)))
    def weighted(numbers):
        def twice(number):
            return number + number

        found = 0
        for number in numbers * 3 + numbers:
            found += twice(number)
        return found

    with events.install_recorder("numba:run_pass") as passed:
        assert weighted(np.arange(4)) == 48
    assert any("inline_closure_likes" in event.data["name"] for _, event in passed.buffer)


def test_garbage_is_collected_less_often_only_while_a_kernel_is_compiled(monkeypatch):
    before, during = gc.get_threshold(), []
    monkeypatch.setattr(KernelCache, "load_overload", lambda *arguments: during.append(gc.get_threshold()[0]))
    assert polynomial()(2, 3) == 17
    assert during == [20_000]
    assert gc.get_threshold() == before


IMPORT_WITHOUT_NUMBA = """
import importlib, pkgutil, sys
import curator_df.kernels
of_numba = ("dispatchers", "kernel_cache", "lane_code")
for module in pkgutil.walk_packages(curator_df.kernels.__path__, "curator_df.kernels."):
    if ".device." not in module.name and not module.name.endswith(of_numba):
        importlib.import_module(module.name)
print("numba" in sys.modules, "llvmlite" in sys.modules)
"""


def test_importing_kernels_does_not_import_numba():
    assert subprocess.check_output([sys.executable, "-c", IMPORT_WITHOUT_NUMBA], text=True) == "False False\n"


def test_a_cast_in_code_that_python_runs_is_a_number():
    assert types_of_kernels.int64(3) == 3
    assert types_of_kernels.uint8(np.int64(255)) == 255


PICKLED = """
import cloudpickle, pickle, sys
sys.path.insert(0, {folder!r})
import curator_df.kernels.text.murmur_hash as kernels
from curator_df.kernels.compiling.compiled import LazyFunction
names = [name for name, value in vars(kernels).items() if type(value) is LazyFunction and value.__module__ == kernels.__name__]
for after in (False, True):
    if after:
        import numba
    for dumps in (pickle.dumps, cloudpickle.dumps):
        for name in names:
            assert pickle.loads(dumps(getattr(kernels, name))) is getattr(kernels, name), name
print(len(names))
"""


def test_kernels_are_pickled_by_name_whether_or_not_numba_is_imported(tmp_path):
    found = subprocess.check_output([sys.executable, "-c", PICKLED.format(folder=str(tmp_path))], text=True)
    assert int(found) >= 2


@pytest.mark.parametrize("decorate", [helper, inlined])
def test_arguments_can_be_passed_by_name(decorate):
    @decorate
    def ratio(first, second):
        return first // second

    assert ratio(second=2, first=9) == 4
    assert ratio(9, second=2) == 4
