# SPDX-License-Identifier: Apache-2.0
"""C4's tests of lines."""
