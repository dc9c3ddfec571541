"""GPU core dumps: what ran on the device when the device failed, and at which instruction and source line."""
