"""Builds the documents of results: one file for each verb."""
