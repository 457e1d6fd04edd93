# SPDX-License-Identifier: Apache-2.0
"""Memory accounting: sizes, the memory of a node, limits of workers, usage of processes and GPUs, queues for shared resources."""
