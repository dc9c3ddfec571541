"""Documents: the content of reports as blocks without a format, and one renderer per format."""
