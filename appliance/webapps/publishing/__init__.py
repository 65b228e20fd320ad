"""Publishing with checks, previews and grants."""
