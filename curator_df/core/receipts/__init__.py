# SPDX-License-Identifier: Apache-2.0
"""What a finished run returns, and how it is shown."""
