"""What rounding explains: how far the rounding errors of each operator move the results of a program."""
