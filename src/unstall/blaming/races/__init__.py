"""Data races between streams, and between device and host, in a program that runs on a real GPU.

torch's CUDA sanitizer (`torch.cuda._sanitizer`) follows streams, events and waits. But it raises an error at the first
race, and misses races in host memory and in reused memory. This package finds these too, and only notes races
(`noted.py`).
"""
