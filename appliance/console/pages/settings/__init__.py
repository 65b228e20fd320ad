"""Pages of the group Settings, and of the appliance itself."""
