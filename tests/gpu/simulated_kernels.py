# SPDX-License-Identifier: Apache-2.0
"""Run every kernel for devices on some texts in numba's CUDA simulator, and write what comes out: a script.

With NUMBA_ENABLE_CUDASIM=1 and NUMBA_DISABLE_JIT=1 kernels and what they call run as Python, on NumPy arrays whose bounds
are checked.
"""

import sys
import warnings

import numpy as np
import pyarrow as pa
from numba import config

from curator_df.kernels.buffers import array_spans
from curator_df.kernels.device import measured
from curator_df.kernels.device.hashes import text_hashes
from curator_df.kernels.device.signatures import text_signatures
from curator_df.kernels.device.texts import texts_to_device
from curator_df.kernels.device_support import DEVICE_METRICS
from curator_df.kernels.minhash_scheme import Scheme

SCHEMES = {
    "signatures_32": Scheme("characters", 24, 2, 3),
    "signatures_64": Scheme("characters", 5, 2, 2, use_64_bit_hash=True),
    "signatures_of_two": Scheme("characters", 2, 1, 2),
}


def results(texts, few):
    """Yield each result by name; ``few``: of so many rows, where a block of threads takes a text."""
    yield "hashes", text_hashes(texts, most_threads=16)
    yield "normalized_hashes", text_hashes(texts, normalize="case_and_spaces", most_threads=16)
    room = measured.Room(span_rows=50, table_slots=300, threads=16)
    yield from measured.text_metrics(texts, DEVICE_METRICS, room).items()
    for name, scheme in SCHEMES.items():
        yield name, text_signatures(few, scheme, threads=4)


def main(source, target):
    assert config.ENABLE_CUDASIM
    assert config.DISABLE_JIT
    # NumPy warns where a number wraps, as every hash here does.
    warnings.simplefilter("ignore")
    array = pa.ipc.open_file(source).get_batch(0).column(0)
    texts, few = (texts_to_device(next(array_spans(part, rows=len(array)))) for part in (array, array[:60]))
    np.savez(target, **{name: values.copy_to_host() for name, values in results(texts, few)})


if __name__ == "__main__":
    main(*sys.argv[1:])
