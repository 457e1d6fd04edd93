# SPDX-License-Identifier: Apache-2.0
"""The public operators: functions from a lazy table to a lazy table."""
