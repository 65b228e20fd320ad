"""Pages of agents and of skills."""
