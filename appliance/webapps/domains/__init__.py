"""Host names of their own for WebApps: claimed by a tenant, proven, watched, and given up with a period of rest."""
