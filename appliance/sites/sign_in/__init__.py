"""The gate of a WebApp: who may open it, and how visitors sign in."""
