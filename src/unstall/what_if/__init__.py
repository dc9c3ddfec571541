"""What-if questions: edits of a `Program`, and replays that tell what each edit gains."""
