"""The course: experiments of asynchronous execution, each a short script with the figures that its author saw."""
