"""A folder and a tenant: plan, apply and pull solutions; and the bundle of services that edges call."""
