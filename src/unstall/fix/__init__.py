"""Functions that mend what slows a program on a GPU, such as `prefetch`, `graphed` and `stream_map`. Each checks its
own results and measures its own gain."""
