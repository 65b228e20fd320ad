"""Pages of the group Operate: executions, approvals, the Monitor, failures, logs and alerts."""
