"""Skills: folders of instructions in the Agent Skills format, held by digest, trusted only where a person said so."""
