"""Screenshots of the console: a tenant with example data, the list of all pages, and a command that takes the pictures."""
