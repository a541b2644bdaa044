"""The settings and instructions of the agents' own programs."""
