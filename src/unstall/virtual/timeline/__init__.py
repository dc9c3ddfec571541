"""Makes a `Timeline` of what was simulated on the virtual GPU, and cuts parts out of a timeline."""
