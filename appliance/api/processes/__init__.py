"""Routes of processes and executions."""
