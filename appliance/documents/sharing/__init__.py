"""What leaves: shares, public documents and the log of downloads."""
