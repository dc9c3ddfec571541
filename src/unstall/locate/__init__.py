"""Where events belong: steps in time, places in source."""
