"""WebApps: numbered, immutable sets of files, of which one is published."""
