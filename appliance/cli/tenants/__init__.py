"""Commands about the quotas and the expiry of tenants."""
