"""Pages of integrations, their calls and settings, and of LLM profiles."""
