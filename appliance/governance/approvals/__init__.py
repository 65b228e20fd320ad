"""Requests to people: asked, sent, decided and ended."""
