# SPDX-License-Identifier: Apache-2.0
"""Start a cluster that keeps the budget, or verify a running one."""
