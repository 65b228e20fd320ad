"""Support for the `file` and `ocr` steps: settings, document contents, and loading rows into collections."""
