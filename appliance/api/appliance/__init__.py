"""Routes of the appliance itself, on its base host and for its own keys: tenants, users, backups, health and audit trail."""
