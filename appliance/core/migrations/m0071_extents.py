"""The shortest and the longest of what a counter holds, so that percentiles of a few are exact."""

STATEMENTS = [
    f"ALTER TABLE {table} ADD COLUMN {column} DOUBLE PRECISION"
    for table in ("tally", "tally_wide")
    for column in ("low_ms", "high_ms")
]
