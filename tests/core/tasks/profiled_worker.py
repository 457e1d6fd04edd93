# SPDX-License-Identifier: Apache-2.0
"""Start and end threads in a worker that Dask profiles, while collections are as frequent as can be: a script.

With the word ``alone`` it does without the library, and stands still sooner or later on Python 3.11.
"""

import gc
import sys
import threading

from distributed import Client, LocalCluster

from curator_df.core.tasks.task import profile_without_collections

THREADS = 20_000


def start_threads(count, alone):
    if not alone:
        profile_without_collections()
    for _ in range(count):
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()
    return count


def main(alone):
    settings = {"n_workers": 1, "threads_per_worker": 1, "memory_limit": "3GB", "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(processes=False, **settings) as cluster, Client(cluster) as client:
        gc.collect()
        gc.freeze()  # so that each collection is of all that there is, as Dask measures those alone
        gc.set_threshold(1, 0, 0)
        started = client.submit(start_threads, THREADS, alone).result()
        (worker,) = cluster.workers.values()
        is_profiled = any(profile["count"] for _, profile in worker.profile_history)
        sys.stdout.write(f"{started} {is_profiled}\n")


if __name__ == "__main__":
    main("alone" in sys.argv)
