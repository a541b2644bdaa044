"""A project on the disk: its manifest, the rendered tree, git, how its shells are started, what they logged."""
