"""Records a running program as a trace. The overhead is low enough that recording can stay on."""
