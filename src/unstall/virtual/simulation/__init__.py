"""The shim's log → times, memory and what the device answers."""
