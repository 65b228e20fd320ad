"""The `file` and `ocr` steps: their members, their contents, and rows on their way into a collection."""
