"""Limits on a run (budgets), and the check whether a run exceeds these limits."""
