"""What the simulation kept → a `Timeline`, or a part of one."""
