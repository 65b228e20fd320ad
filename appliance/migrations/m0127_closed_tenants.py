"""A tenant that is being deleted is closed first, and then emptied in short writes."""

STATEMENTS = ["ALTER TABLE tenant ADD COLUMN closed_at BIGINT"]
