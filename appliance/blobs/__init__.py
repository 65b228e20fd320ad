"""Bytes by their sha256: kept once per tenant, for as long as something refers to them."""
