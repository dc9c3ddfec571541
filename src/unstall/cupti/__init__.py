"""CUPTI: what the device did and which calls the host made, recorded by NVIDIA's own library."""
