"""Observes one call, finds reasons why a graph of the call is not possible, and makes the graph's guards."""
