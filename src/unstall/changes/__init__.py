"""What changed between two recorded runs."""
