"""Before any edge: connections, admission, the host table, and what is refused at once."""
