"""What `torch.profiler` gives a program on the virtual GPU, and the trace of a run as it writes them."""
