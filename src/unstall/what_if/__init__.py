"""Predicts the gain of a change: edits of a `Program`, replayed."""
