"""Pages of the group Govern: policies, kill switches, confirmations and the audit trail."""
