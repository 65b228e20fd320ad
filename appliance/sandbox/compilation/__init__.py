"""Compiles source files to artefacts, and maps positions in them back to the sources."""
