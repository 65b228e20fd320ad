"""The composition root: the only package that may import all others.

Code that needs no running appliance, such as most commands, should import only `store` and `parts`; `composition` loads
everything.
"""
