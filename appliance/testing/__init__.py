"""For tests of plugins, solutions and of the appliance itself: a running appliance and clients for it."""
