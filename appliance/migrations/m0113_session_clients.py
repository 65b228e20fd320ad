"""Sessions say where they are used: browser and system, the address at the sign-in, and when and where they were last used."""

STATEMENTS = [
    f"ALTER TABLE session ADD COLUMN {column}"
    for column in (
        "browser TEXT NOT NULL DEFAULT ''", "system TEXT NOT NULL DEFAULT ''", "address TEXT NOT NULL DEFAULT ''",
        "used_address TEXT NOT NULL DEFAULT ''", "used_at BIGINT NOT NULL DEFAULT 0",
    )
]  # fmt: skip
