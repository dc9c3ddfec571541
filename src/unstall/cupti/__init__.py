"""Records device work and driver calls with CUPTI, NVIDIA's profiling library."""
