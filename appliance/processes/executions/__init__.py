"""Executions as callers see them: started, found, read, cancelled and retried."""
