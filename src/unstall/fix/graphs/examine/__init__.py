"""One call observed, the reasons against a graph of it, and the guards of one."""
