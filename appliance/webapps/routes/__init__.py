"""The routes of a version: what they run or reach."""
