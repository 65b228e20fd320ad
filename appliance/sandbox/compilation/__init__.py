"""From source text to an artefact, and from its positions back to the author's."""
