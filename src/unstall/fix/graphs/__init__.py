"""CUDA graphs of functions, modules and training steps: observes calls, captures graphs and replays graphs."""
