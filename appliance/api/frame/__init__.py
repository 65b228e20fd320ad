"""What every family of routes shares: routes, callers, bodies, answers, errors and the OpenAPI document."""
