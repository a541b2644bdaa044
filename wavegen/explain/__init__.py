"""Answers about a policy: what is reached and by which rule, what would change it, how two plans differ."""
