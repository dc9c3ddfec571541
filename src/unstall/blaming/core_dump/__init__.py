"""GPU core dumps: what ran on the device when it failed, and at which instruction and source line."""
