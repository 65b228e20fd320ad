"""Who may open a WebApp, and the visits of those who do."""
