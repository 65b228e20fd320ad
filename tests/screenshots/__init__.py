"""The console as people see it: a furnished tenant, the list of its pages, and their pictures by one command."""
