# SPDX-License-Identifier: Apache-2.0
"""Conversion of a Dask expression to a program, and an estimate of its needs before anything runs."""
