# SPDX-License-Identifier: Apache-2.0
"""Processing of one range on a worker."""
