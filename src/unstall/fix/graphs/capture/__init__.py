"""Captures graphs on one stream and on several streams, and has the device interface that captures need."""
