"""PHP step code: an engine, an instance per step, its files in memory, and its faults in the author's words."""
