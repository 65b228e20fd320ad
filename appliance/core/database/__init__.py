"""The database: one writer, readers, and all differences between SQLite and PostgreSQL."""
