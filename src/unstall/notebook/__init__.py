"""Magics for notebooks: `%%unstall` and `%unstall_bench`."""
