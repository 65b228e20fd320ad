"""Of rules only calls are counted; what models cost is kept with their profiles."""

STATEMENTS = [
    "ALTER TABLE governed_use DROP COLUMN tokens",
    "ALTER TABLE governed_use DROP COLUMN micro_usd",
]
