"""The experiments of the course, one file each. The file has the name of the experiment's script in
`experiments/`, and defines `ROW`.
"""
