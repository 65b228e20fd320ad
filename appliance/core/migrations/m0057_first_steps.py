"""When somebody put the first steps of a tenant away."""

STATEMENTS = [
    "ALTER TABLE membership ADD COLUMN steps_hidden_at BIGINT",
]
