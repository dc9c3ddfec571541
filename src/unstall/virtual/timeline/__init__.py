"""The simulation's history → a `Timeline`, or a part of one."""
