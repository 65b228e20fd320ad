"""Commands about the quotas, the expiry and the service accounts of tenants."""
