"""What a process that handles foreign code gives up before it does."""
