"""A running program → a trace, cheaply enough to leave on."""
