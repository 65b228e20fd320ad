"""Inside a sandbox process: engines, instances and the runs of steps."""
