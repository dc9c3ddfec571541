"""Documents: what a command says, as blocks without a format. There is one renderer for each output format."""
