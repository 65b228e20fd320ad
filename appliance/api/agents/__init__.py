"""Routes of agents, skills and LLM profiles."""
