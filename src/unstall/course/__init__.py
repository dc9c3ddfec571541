"""The course: experiments on asynchronous execution. Each is a short script, with the figures that its author saw."""
