# SPDX-License-Identifier: Apache-2.0
"""English words as datatrove splits them."""
