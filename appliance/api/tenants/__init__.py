"""Routes of the tenant: members, keys, invitations and secrets."""
