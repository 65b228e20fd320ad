"""Requests to WebApps: who came, what they got, how much that was, and how much of it is allowed."""
