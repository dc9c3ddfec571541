"""`torch.profiler` on the virtual GPU, and trace files in its format."""
