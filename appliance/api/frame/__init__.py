"""The shared base of all REST routes: declaration, authentication, bodies, answers and the OpenAPI document."""
