"""Changes of more rows than one write should have (`short_writes`)."""
