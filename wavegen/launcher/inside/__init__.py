"""What runs inside the sandbox before the command. The launcher gives these files to their interpreters as text, so nothing is mounted for them."""
