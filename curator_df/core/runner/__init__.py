# SPDX-License-Identifier: Apache-2.0
"""Connection to the running cluster, the passes of a run, and the progress reports."""
