# SPDX-License-Identifier: Apache-2.0
"""Memory accounting: the memory of a node, limits of workers, usage of processes and GPUs, and queues for shared resources."""
