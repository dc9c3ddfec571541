"""What a change would gain: edits of a `Program`, replayed."""
