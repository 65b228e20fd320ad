"""Passwords that the appliance has made up are temporary, and tokens of SCIM can expire and be rotated.

`password_expires_at` is set for a temporary password, which the first sign-in replaces; one that a person has chosen has none.
"""

STATEMENTS = [
    "ALTER TABLE person ADD COLUMN password_expires_at BIGINT",
    "ALTER TABLE scim_token ADD COLUMN expires_at BIGINT",
    "ALTER TABLE scim_token ADD COLUMN rotated_from TEXT",
]
