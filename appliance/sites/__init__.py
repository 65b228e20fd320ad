"""What stands in front of the edges: the host table, admission, static files; later WebApps and the CDN."""
