"""DataPool: collections of typed entities; entered by `service`."""
