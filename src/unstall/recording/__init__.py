"""Records a running program as a trace, with an overhead low enough to leave it on."""
