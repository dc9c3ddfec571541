"""Limits on a run (budgets), and the check of whether a run exceeds them."""
