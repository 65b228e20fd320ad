"""Routes of integrations, their actions and their calls."""
