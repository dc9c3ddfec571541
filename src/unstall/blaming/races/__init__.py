"""Data races between streams, and between device and host, in a program that runs on a real GPU.

torch's stream sanitizer (`torch.cuda._sanitizer`) follows streams, events and waits. It raises an error at the first
race, and knows neither host memory nor memory that is reused. Here nothing is raised; races are noted (`noted.py`).
"""
