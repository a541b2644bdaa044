"""`wavegen seccomp`."""

from __future__ import annotations

import sys

import click

from wavegen.cli.messages import MANIFEST


@click.group()
def seccomp() -> None:
    """System call filters: what they say, and what a command needs."""


@seccomp.command("explain")
@MANIFEST
@click.option("-s", "--shell", metavar="SHELL", default="default", show_default=True, help="Whose filter: a shell, or persona-NAME.")
@click.option("--arch", type=click.Choice(["x86_64", "aarch64"]), help="For which processor. Default: this machine's.")
@click.option("--program", is_flag=True, help="Print the program that the kernel runs instead.")
@click.option("--json", "as_json", is_flag=True, help="Print it as docker and podman read it.")
def explain_shell_filter(manifest: str | None, shell: str, *, arch: str | None, program: bool, as_json: bool) -> None:
    """Print a shell's filter: each rule with the answer and why."""
    import platform

    from wavegen.backends.sandboxes import rules_file
    from wavegen.core.errors import UsageError
    from wavegen.core.quote import json_text
    from wavegen.manifest.model import BackendName
    from wavegen.project import loader, wrappers
    from wavegen.seccomp import Arch, bpf
    from wavegen.seccomp.explain import explain_filter, list_instructions
    from wavegen.seccomp.oci import render_oci_profile

    loaded = loader.load_project(manifest, accept=True)
    policy = loaded.plan.find_fence(shell) or wrappers.shell_of(loaded.plan, shell)
    alone = policy.fenced and loaded.plan.backend is BackendName.LANDLOCK
    found = (rules_file.landlock_filter if alone else rules_file.filter_of_shell)(policy)
    if found is None:
        raise UsageError(f"{shell} has no system call filter", "remove seccomp: off, or name a shell that has a fence")
    name = (arch or platform.machine()).upper()
    if name not in Arch.__members__:
        raise UsageError(f"there is no filter for {platform.machine()}", "name one with --arch")
    if as_json:
        click.echo(json_text(render_oci_profile(found)), nl=False)
        return
    for line in list_instructions(bpf.compile_filter(found, Arch[name])) if program else explain_filter(found, Arch[name]):
        click.echo(line)


@seccomp.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def learn(command: tuple[str, ...]) -> None:
    """Run COMMAND, without a fence, and print what `seccomp: strict` would have to let through.

    \b
      wavegen seccomp learn -- make test
    """
    from wavegen.learn import syscalls as learning

    found = learning.learn_syscalls(command)
    for line in learning.proposal_lines(found):
        click.echo(line)
    sys.exit(found.status)
