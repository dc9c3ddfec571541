"""The answer to "what if", in each format."""
