"""A running appliance with clients, for tests of plugins, of solutions and of the appliance itself."""
