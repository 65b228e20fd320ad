"""What `gos doctor` and the appliance's API say about an installation; `checks.py` runs all checks."""
