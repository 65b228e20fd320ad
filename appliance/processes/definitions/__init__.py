"""Process definitions: parsed with every problem at once, typed, checked, and kept as drafts and numbered versions."""
