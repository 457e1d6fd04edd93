# SPDX-License-Identifier: Apache-2.0
"""Metrics of source code and of HTML pages."""
