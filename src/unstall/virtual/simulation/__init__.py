"""The shim's log → times, memory, and answers for the program."""
