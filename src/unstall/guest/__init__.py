"""Being a guest in somebody else's program: its steps, what is patched and put back, what is under way."""
