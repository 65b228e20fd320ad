"""Documents: files with a name, a folder and tags, whose contents are kept revision by revision."""
