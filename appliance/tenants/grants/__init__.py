"""What was granted to processes and WebApps, and whether it still holds."""
