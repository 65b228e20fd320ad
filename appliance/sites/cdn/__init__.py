"""The CDN host of a tenant: published documents and shares."""
