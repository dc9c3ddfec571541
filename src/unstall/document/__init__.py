"""What a verb has to say, as blocks without a format, and one renderer a format."""
