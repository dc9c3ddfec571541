"""Converts the simulation's history into a `Timeline`, and cuts parts out of one."""
