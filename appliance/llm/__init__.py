"""Language models: a tenant's profiles, the client that asks them, what it costs and what of a prompt stays here."""
