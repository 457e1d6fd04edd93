# SPDX-License-Identifier: Apache-2.0
"""The running cluster, the passes of a run, and what it reports while it goes on."""
