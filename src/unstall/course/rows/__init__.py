"""One file a row. It has the name of the row's script in `experiments/`, and defines `ROW`."""
