"""Why a discovered action is not offered at present."""

STATEMENTS = ["ALTER TABLE integration_action ADD COLUMN withheld TEXT NOT NULL DEFAULT ''"]
