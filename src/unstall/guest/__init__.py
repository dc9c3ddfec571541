"""Code that runs inside the user's program: step boundaries, temporary patches, the active recording."""
