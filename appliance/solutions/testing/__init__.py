"""The tests of a solution and its agents."""
