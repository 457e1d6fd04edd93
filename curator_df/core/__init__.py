# SPDX-License-Identifier: Apache-2.0
"""The engine: columns, sources and sinks, programs, plans and the runner. Names no text concept."""
