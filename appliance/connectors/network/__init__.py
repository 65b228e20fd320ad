"""Names and addresses: what may be reached."""
