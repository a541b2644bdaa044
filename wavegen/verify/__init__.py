"""The proof from inside a shell: a testbed, attempts, verdicts and reports."""
