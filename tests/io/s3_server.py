# SPDX-License-Identifier: Apache-2.0
"""A real server of the S3 protocol on this machine, in a process of its own: it outlives the runs that are killed."""

import contextlib
import re
import subprocess
import sys
import time


@contextlib.contextmanager
def s3_server(folder):
    """Yield the storage options with which fsspec reaches it."""
    # Not a pipe: nobody reads it, and the server stops when it is full.
    log = folder / "log"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with open(log, "w") as file, subprocess.Popen(command, stderr=file) as process:
        try:
            deadline = time.monotonic() + 60
            while not (found := re.search(r"Running on (http://\S+)", log.read_text())):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the server did not start: {log.read_text()}")
                time.sleep(0.1)
            yield {"key": "a", "secret": "b", "client_kwargs": {"endpoint_url": found[1]}}
        finally:
            process.terminate()
