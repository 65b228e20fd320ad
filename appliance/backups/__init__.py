"""Backups of a whole appliance in one file, and exports of one tenant."""
