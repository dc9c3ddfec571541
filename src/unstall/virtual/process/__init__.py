"""One process on the virtual GPU: from before its first line to what is left of its run."""
