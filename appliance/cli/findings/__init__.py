"""What `gos doctor` finds, by subject."""
