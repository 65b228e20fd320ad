"""The database: one writer, readers, and the dialect seam between SQLite and PostgreSQL."""
