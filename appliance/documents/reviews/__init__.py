"""Reviews of documents by named people."""
