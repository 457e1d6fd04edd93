# SPDX-License-Identifier: Apache-2.0
"""Watch a cluster: memory over time of every process and GPU, and alerts before a limit is reached."""
