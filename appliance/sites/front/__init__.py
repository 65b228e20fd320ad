"""Before any edge: connections, admission, static files, and what is refused at once."""
