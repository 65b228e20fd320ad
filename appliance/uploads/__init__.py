"""Files on their way in, in forms: what the edges that take them share."""
