# SPDX-License-Identifier: Apache-2.0
"""What every operator stands on: columns, backends, the budget, programs, plans, the runner. Names no text concept."""
