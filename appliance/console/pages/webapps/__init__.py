"""Pages of WebApps: their versions, domains, certificates and traffic."""
