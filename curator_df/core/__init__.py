# SPDX-License-Identifier: Apache-2.0
"""Foundation of every operator: columns, backends, budget, programs, plans and the runner. Names no text concept."""
