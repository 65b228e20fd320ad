"""Pages of processes: the list, the editor, dry runs and versions."""
