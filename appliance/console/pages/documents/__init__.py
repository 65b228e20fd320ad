"""Pages of documents: the list, one document, its shares and what keeps it."""
