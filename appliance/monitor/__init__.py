"""What happened: log lines, failures, metrics, counters over time and the audit trail."""
