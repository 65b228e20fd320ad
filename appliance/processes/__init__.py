"""ProcessFlow: definitions and versions, the engine that decides, the runner that performs."""
