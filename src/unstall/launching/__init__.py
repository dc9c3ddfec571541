"""Starting a program as a child that is armed before its first line."""
