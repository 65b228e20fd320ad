"""Certificates of hosts: uploaded, issued by the built-in authority, or ordered by ACME."""
