"""Timeline → Result: steps, accounts, rules."""
