# SPDX-License-Identifier: Apache-2.0
"""From a Dask expression to a program, and what it will need before anything runs."""
