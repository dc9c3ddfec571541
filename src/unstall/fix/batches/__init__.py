"""Fetches the batches of a data loader before the program asks for them."""
