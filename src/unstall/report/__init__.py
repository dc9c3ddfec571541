"""Builds documents (reports) from results. Each verb of the command line has one module."""
