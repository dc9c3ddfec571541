"""CUDA graphs of functions, modules and training steps: what a call needs, and how it is served."""
