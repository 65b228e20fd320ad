"""Sign-ins with an identity provider know whether the provider vouches for a second factor; earlier ones counted as if it did."""

STATEMENTS = ["ALTER TABLE provider_sign_in ADD COLUMN strong BOOLEAN NOT NULL DEFAULT TRUE"]
