"""Records a running program as a trace, with little overhead."""
