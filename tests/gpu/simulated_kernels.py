# SPDX-License-Identifier: Apache-2.0
"""Run every kernel for devices on some texts in numba's CUDA simulator, and write what comes out: a script.

With NUMBA_ENABLE_CUDASIM=1 and NUMBA_DISABLE_JIT=1 kernels and what they call run as Python, on NumPy arrays whose bounds
are checked.
"""

import sys
import warnings
import weakref

import numpy as np
import pyarrow as pa
from numba import config, cuda

from curator_df.kernels.device import measured
from curator_df.kernels.device.signatures import text_hashes, text_signatures
from curator_df.kernels.device.support import (
    SIGNATURE_ROWS,
    Room,
    metrics_price,
    signatures_price,
)
from curator_df.kernels.device.texts import DeviceTexts, texts_to_device
from curator_df.kernels.metrics.catalog import METRICS, features_of
from curator_df.kernels.metrics.counts import FAMILIES
from curator_df.kernels.text.buffers import array_spans
from tests.gpu.scripts import SCHEMES, STOP_WORDS_OF_TEST
from tests.gpu.simulator import take_turns

FEW, FEWER = 36, 12
"""First texts of which signatures and their prices are made: the simulator is slow."""
PRICED = slice(20, 34)
"""Texts of which the prices of metrics are made: among them are lines of each kind that is counted."""


class Allocations:
    """Counts the bytes of arrays of the device that are held; in the simulator they are NumPy's."""

    def __init__(self):
        self.held = self.most = 0
        self._allocate = cuda.device_array

    def __enter__(self):
        cuda.device_array = self._counted
        return self

    def __exit__(self, *exc):
        cuda.device_array = self._allocate

    def _counted(self, shape, dtype):
        array = self._allocate(shape, dtype)
        self.held += array._ary.nbytes
        self.most = max(self.most, self.held)
        weakref.finalize(array._ary, self._let_go, array._ary.nbytes)
        return array

    def _let_go(self, size):
        self.held -= size


def few_of(texts, rows):
    """Return the first rows of texts."""
    return DeviceTexts(texts.data, texts.offsets[: rows + 1], texts.valid[:rows])


def prices(texts):
    """Yield, for each kind of counts, what metrics of it hold at most, and the price that was said."""
    room = Room(span_rows=8, table_cells=300, threads=16, gram_bytes=300_000, short_text_bytes=300)
    for number, family in enumerate(FAMILIES):
        metrics = [name for name in METRICS if features_of([name]) & family.features]
        with Allocations() as tables:
            measured.text_metrics(few_of(texts, 0), metrics, room)
        with Allocations() as counted:
            measured.text_metrics(texts, metrics, room)
        factor, fixed_bytes = metrics_price(metrics, room)
        block_bytes = len(texts.data) + 8 * len(texts)
        known = fixed_bytes + 8 * len(texts) * len(metrics)  # but for the table of lines of a long text
        held = counted.most - tables.most
        yield f"price_{number}", np.array([held, known, block_bytes * factor + fixed_bytes, tables.most])


def listed_price(texts):
    """Return what a list of stop words holds at most beside tables, and the price that was said."""
    room, names, listed = Room(span_rows=8, threads=200), ["stop_word_count"], {"stop_words": STOP_WORDS_OF_TEST}
    with Allocations() as tables:
        measured.text_metrics(few_of(texts, 0), names, room, **listed)
    with Allocations() as counted:
        measured.text_metrics(texts, names, room, **listed)
    factor, fixed_bytes = metrics_price(names, room, STOP_WORDS_OF_TEST)
    return np.array([counted.most - tables.most, (len(texts.data) + 8 * len(texts)) * factor + fixed_bytes])


def signature_prices(texts):
    """Yield, for each scheme, what signatures hold at most beside tables, and the price of so many rows."""
    for name, scheme in SCHEMES.items():
        with Allocations() as tables:
            text_signatures(few_of(texts, 1), scheme, threads=4)
        with Allocations() as counted:
            text_signatures(texts, scheme, threads=4)
        factor, fixed_bytes = signatures_price(scheme)
        held = counted.most - tables.most
        yield f"price_of_{name}", np.array([held, len(texts.data) * factor + len(texts) * fixed_bytes / SIGNATURE_ROWS])


def results(texts, few):
    """Yield each result by name; ``few``: of so many rows, where a block of threads takes a text."""
    yield "hashes", text_hashes(texts, most_threads=16)
    yield "normalized_hashes", text_hashes(texts, normalize="case_and_spaces", most_threads=16)
    room = measured.Room(span_rows=30, table_cells=300, threads=16)
    yield from measured.text_metrics(texts, METRICS, room).items()
    listed = measured.text_metrics(texts, ["stop_word_count"], room, stop_words=STOP_WORDS_OF_TEST)
    yield "listed_words", listed["stop_word_count"]
    for name, scheme in SCHEMES.items():
        yield name, text_signatures(few, scheme, threads=4)


def main(source, target):
    assert config.ENABLE_CUDASIM
    assert config.DISABLE_JIT
    take_turns()
    # NumPy warns where a number wraps, as every hash here does.
    warnings.simplefilter("ignore")
    array = pa.ipc.open_file(source).get_batch(0).column(0)
    parts = (array, array[:FEW], array[:FEWER], array[PRICED])
    texts, few, fewer, priced = (texts_to_device(next(array_spans(part, rows=len(array)))) for part in parts)
    found = {name: values.copy_to_host() for name, values in results(texts, few)}
    found["price_of_listed_words"] = listed_price(priced)
    np.savez(target, **found, **dict(prices(priced)), **dict(signature_prices(fewer)))


if __name__ == "__main__":
    main(*sys.argv[1:])
