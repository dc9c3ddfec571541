"""Builds documents (reports) from results. For each verb of the command line that has a report, one
module builds it.
"""
