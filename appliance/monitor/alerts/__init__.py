"""Alerts: conditions that are looked at again and again, and who is told when one begins and ceases to hold."""
