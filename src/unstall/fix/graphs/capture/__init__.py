"""Captures CUDA graphs on one stream and on several streams. Contains the interface of the device that captures
need."""
