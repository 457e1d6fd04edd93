# SPDX-License-Identifier: Apache-2.0
"""Threads of numba's CUDA simulator that take turns, in a fraction of the time that its own take.

Numba starts a thread of Python for each thread of a block, and looks at all of them again and again until they have ended; with
Python's lock that takes most of the time. Here a kernel without barriers is called in a loop. In a kernel with barriers each
thread runs up to the next one, and then the next thread, each time in another order. Without barriers the last thread runs first.
So a kernel whose threads need what another one did, without a barrier, gives other numbers than the CPU. Kernels get NumPy's
arrays without the simulator's two wrappers, which take a third of the rest; NumPy checks bounds as before.
"""

import operator
import random
import threading

import numpy as np
from numba.cuda.simulator import kernel
from numba.cuda.simulator.kernelapi import Dim3

ORDERS = random.Random(1)
"""Orders of threads, the same in each process."""


def take_turns():
    """Let kernels of this process run so from now on."""
    kernel.BlockManager = Block
    kernel.FakeWithinKernelCUDAArray = operator.attrgetter("_ary")


def has_barriers(function):
    """Tell whether a kernel itself waits for the other threads of its block; functions that it calls may not."""
    return "syncthreads" in function.__code__.co_names


class Block:
    """A block of threads, in place of numba's ``BlockManager``."""

    def __init__(self, function, grid_dim, block_dim, debug):
        self.function, self.debug, self._block_dim = function, debug, block_dim
        self.paused = threading.Semaphore(0)

    def run(self, block_index, *arguments):
        """Run all threads to their end."""
        places = list(np.ndindex(*self._block_dim))[::-1]
        if has_barriers(self.function):
            self._run_in_turns([Turns(self, block_index, place, arguments) for place in places])
            return
        here = threading.current_thread()
        here.blockIdx = Dim3(*block_index)
        for place in places:
            here.threadIdx = Dim3(*place)
            self.function(*arguments)

    def _run_in_turns(self, threads):
        for thread in threads:
            thread.start()
            self.paused.acquire()
        while threads:
            for thread in threads:
                if thread.exception:
                    raise thread.exception[0].with_traceback(thread.exception[1])
            threads = [thread for thread in threads if not thread.has_ended]
            ORDERS.shuffle(threads)
            for thread in threads:
                thread.turn.release()
                self.paused.acquire()


class Turns(kernel.BlockThread):
    """A thread that runs up to the next barrier when it has its turn."""

    def __init__(self, block, block_index, place, arguments):
        super().__init__(lambda: block.function(*arguments), block, block_index, place, block.debug)
        self.turn, self.has_ended = threading.Semaphore(0), False

    def run(self):
        try:
            super().run()
        finally:
            self.has_ended = True
            self._manager.paused.release()

    def syncthreads(self):
        self._manager.paused.release()
        self.turn.acquire()
