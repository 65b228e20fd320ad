"""A tenant is reset in many writes: `tenant.reset_at` says since when, and it does nothing until that is over.

The archive of the solution that is applied then is in a row beside that of the job, so that every process and every backup has it.
"""

STATEMENTS = [
    "ALTER TABLE tenant ADD COLUMN reset_at BIGINT",
    "ALTER TABLE tenant_job ADD COLUMN archive {blob}",
]
