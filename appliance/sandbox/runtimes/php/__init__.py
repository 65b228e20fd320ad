"""Makes PHP ready for steps: its npm build becomes a module with few imports, started once and compiled."""
