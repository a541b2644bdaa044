"""The rooms of the house, in rows: a package imports only from rows above its own. CONTRIBUTING.md prints this table."""

from __future__ import annotations

ROWS = (
    (("launcher",), "starts shells and answers their network, from a rendered project too: the standard library alone, Python 3.9, nothing of wavegen"),
    (("core",), "errors with places and exit codes, quoting for each language that is written, the terminal, files of the package"),
    (("manifest",), "YAML with places, the decoder, the manifest's model and its JSON schema"),
    (("seccomp",), "system call filters as values: compiled to BPF and to docker's JSON"),
    (("policy",), "the model of what may be done, the defaults, and the planner that makes one policy a shell"),
    (("backends",), "files of sandboxes, agents and the project, from the policy, and the gaps: what each cannot enforce"),
    (("project",), "the project on the disk: finding it, the rendered tree, git, starts, the library, the log, ecosystems, the first manifest"),
    (("explain", "verify", "audit", "learn"), "answers about the policy; the proof from inside; what a session left behind; system calls of a command"),
    (("doctor",), "what a machine can enforce, and how to fix it"),
    (("cli",), "the command line, one verb a file"),
)
"""Packages of a row, and what lives there. Packages of one row do not import each other."""


def rows_as_markdown() -> str:
    """The table of CONTRIBUTING.md."""
    lines = (f"| {' '.join(f'`{name}`' for name in names)} | {what} |\n" for names, what in ROWS)
    return "| packages | |\n|---|---|\n" + "".join(lines)
