"""Routes of WebApps."""
