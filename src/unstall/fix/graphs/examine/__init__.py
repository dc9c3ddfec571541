"""Observes one call, finds reasons against a graph of it, and makes the graph's guards."""
