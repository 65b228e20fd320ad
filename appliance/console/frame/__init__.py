"""The framework of the console's pages: routing, sessions, forms, rendering and value formatting."""
