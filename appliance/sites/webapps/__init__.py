"""WebApps on their hosts: files, routes, previews and custom domains."""
