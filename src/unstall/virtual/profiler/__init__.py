"""`torch.profiler` on the virtual GPU, and the trace of a run in the same format."""
