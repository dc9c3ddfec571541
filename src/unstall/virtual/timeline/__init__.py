"""Converts the simulation's history into a `Timeline`. Also cuts parts out of a timeline."""
