"""Decisions, expressions and schema checks."""
