"""The pages of the console, by the groups of its menu."""
