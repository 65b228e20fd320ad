"""What a step reaches: its journal, its grants, secrets, models, documents and the governed executor."""
