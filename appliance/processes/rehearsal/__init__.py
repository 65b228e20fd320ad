"""Processes without effects: dry runs, replays, samples and test tables."""
