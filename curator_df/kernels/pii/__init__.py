# SPDX-License-Identifier: Apache-2.0
"""Personal data and secrets in texts."""
