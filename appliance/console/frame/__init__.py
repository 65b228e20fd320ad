"""What every page of the console shares: routes, sessions, forms, rendering, and how values are shown."""
