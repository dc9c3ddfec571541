"""Documents: the content of a report as format-independent blocks, and one renderer for each output format."""
