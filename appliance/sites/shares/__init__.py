"""Shares: the page behind a link, its gate and the file."""
