"""What is in a content: its type, text and picture, and whether anybody may have it."""
