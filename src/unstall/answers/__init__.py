"""The public functions that analyse runs, and their results, which can be shown, saved and printed."""
