# SPDX-License-Identifier: Apache-2.0
"""Count n-grams of words with the kernels for devices in numba's CUDA simulator, and write what comes out: a script.

Once with room for a few texts at a time, and once with every text counted as a long one.
"""

import sys
import warnings

import numpy as np
import pyarrow as pa
from numba import config

from curator_df.kernels.device import measured, tables
from curator_df.kernels.device.support import Room, metrics_price
from curator_df.kernels.device.texts import texts_to_device
from curator_df.kernels.metrics.catalog import METRICS, features_of
from curator_df.kernels.metrics.counts import GRAM_FEATURES, REPEAT_FEATURES
from curator_df.kernels.text.buffers import array_spans
from tests.gpu.scripts import LONG_METRICS
from tests.gpu.simulated_kernels import Allocations, few_of
from tests.gpu.simulator import take_turns

GRAM_METRICS = [name for name in METRICS if features_of([name]) & (GRAM_FEATURES | REPEAT_FEATURES)]
OF_ONE_GROUP = [name for name in GRAM_METRICS if not features_of([name]) & REPEAT_FEATURES]
ROOMS = {
    "short": Room(span_rows=40, table_cells=300, threads=16, gram_bytes=10_000),
    "as_long": Room(span_rows=40, table_cells=300, threads=16, gram_bytes=400_000, short_text_bytes=0),
}


class Launches:
    """Counts the parts that rows are cut into: what the kernels of n-grams are launched for."""

    def __init__(self):
        self.rows = []
        self._one_by_one, self._count_grams = tables.one_by_one, measured.count_grams_into

    def __enter__(self):
        measured.count_grams_into = self._watched
        return self

    def __exit__(self, *exc):
        measured.count_grams_into = self._count_grams

    def _watched(self, *arguments):
        """Watch the launches of n-grams only: other counts are launched by the same module."""
        tables.one_by_one = self._counted
        try:
            self._count_grams(*arguments)
        finally:
            tables.one_by_one = self._one_by_one

    def _counted(self, rows, most_threads):
        self.rows.append(rows)
        return self._one_by_one(rows, most_threads)


def on_device(texts):
    """Return a column as the kernels take it."""
    return texts_to_device(next(array_spans(texts, rows=len(texts))))


def measure_in(room, texts, metrics):
    """Return metrics, what they hold at most beside tables, the price of that, and the launches that counted n-grams."""
    with Allocations() as tables:
        measured.text_metrics(few_of(texts, 0), metrics, room)
    with Allocations() as counted, Launches() as launches:
        found = measured.text_metrics(texts, metrics, room)
    factor, fixed_bytes = metrics_price(metrics, room)
    block_bytes = len(texts.data) + 8 * len(texts)
    price = [counted.most - tables.most, factor * block_bytes + fixed_bytes]
    return {name: values.copy_to_host() for name, values in found.items()}, price, launches.rows


def main(source, target):
    assert config.ENABLE_CUDASIM
    assert config.DISABLE_JIT
    take_turns()
    # NumPy warns where a number wraps, as every hash here does.
    warnings.simplefilter("ignore")
    array = pa.ipc.open_file(source).get_batch(0).column(0)
    last = len(array) - len(LONG_METRICS)
    texts, *long = (
        on_device(part) for part in (array[:last], *(array[row : row + 1] for row in range(last, len(array))))
    )
    results = {}
    for way, room in ROOMS.items():
        found, price, parts = measure_in(room, texts, GRAM_METRICS)
        results |= {f"{way} {name}": values for name, values in found.items()} | {f"{way} price": price}
        results[f"{way} parts"] = parts
    _, results["bounded price"], _ = measure_in(ROOMS["short"], texts, OF_ONE_GROUP)
    for number, names in enumerate(LONG_METRICS):
        found, results[f"long_{number} price"], _ = measure_in(ROOMS["as_long"], long[number], names)
        results |= {f"long {name}": values for name, values in found.items()}
    np.savez(target, **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
