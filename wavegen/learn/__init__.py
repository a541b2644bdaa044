"""Which system calls a command makes, and what a filter would answer to them."""
