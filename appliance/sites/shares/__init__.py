"""Shares: the page of a share link, its gate, and the download."""
