"""The commands `%%unstall` and `%unstall_bench` for IPython notebooks (notebooks call such commands magics)."""
