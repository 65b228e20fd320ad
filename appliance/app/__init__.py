"""The composition root, the only room that knows every other.

What needs no running appliance, as most commands do not, imports `store` and `parts` alone: `composition` loads everything.
"""
