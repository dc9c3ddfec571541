"""Data races between streams, and between device and host, in a program that runs on a real GPU.

torch's CUDA sanitizer (`torch.cuda._sanitizer`) follows streams, events and waits. But it raises an error at the first
race, and misses races in host memory and in reused memory. This package also finds the races that the sanitizer misses.
It raises no error at a race, but collects all races (`noted.py`).
"""
