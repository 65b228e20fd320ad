"""What follows the failure of an execution: what is undone, and the execution that handles it."""

STATEMENTS = [
    "ALTER TABLE execution ADD COLUMN aftermath TEXT",
    "ALTER TABLE execution ADD COLUMN handles TEXT",
    "ALTER TABLE step_run ADD COLUMN undo_order BIGINT",
]
