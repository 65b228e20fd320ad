"""The span of whoever asked for an execution, which its own spans go on from."""

STATEMENTS = ["ALTER TABLE execution ADD COLUMN trace TEXT"]
