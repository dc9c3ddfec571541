"""Three methods to measure how long the device works for a call."""
