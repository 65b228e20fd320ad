"""Where people arrive: sign-in, the way to a tenant or a WebApp, and the first page."""
