"""The files of a version: received, checked, compressed, and the rules beside them."""
