"""Imports of CSV, NDJSON and workbooks: reading rows, storing them, and imports in the console, which are rows themselves."""
