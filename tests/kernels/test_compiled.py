# SPDX-License-Identifier: Apache-2.0
"""Kernels are compiled when they are called, and helpers are compiled into them."""

import os
import subprocess
import sys

import numpy as np
import pytest
from numba import types

from curator_df.kernels.compiling.compiled import chosen, helper, inlined, kernel
from curator_df.kernels.compiling.compiled import types as types_of_kernels

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
    cache = doubled_total._cache
    monkeypatch.setattr(cache, "load_overload", lambda sig, target_context: None)
    monkeypatch.setattr(cache, "save_overload", lambda sig, data: None)
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
