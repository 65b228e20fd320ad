"""Pages of documents: the list, one document, its shares, retention and legal hold."""
