"""Who: tenants, users, memberships, sessions, API keys, scopes, rate limits and secrets."""
