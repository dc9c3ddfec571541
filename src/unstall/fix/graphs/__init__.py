"""CUDA graphs of functions, modules and training steps: examining calls, capturing them and serving them."""
