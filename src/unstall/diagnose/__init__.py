"""Makes the result of a timeline: its steps, the accounts of its time, and the findings of all rules."""
