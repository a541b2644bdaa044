"""docker and podman: what .wavegen/docker/run-SHELL needs of them, in the words in which launcher/engine.py refuses."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator

from wavegen.core.quote import quote_bash
from wavegen.doctor import Check, Needs, State, absent_check, failed_check, passed_check, weaker_check
from wavegen.doctor.machine import Done, Machine
from wavegen.launcher.engine import INFO
from wavegen.manifest.model import BackendName
from wavegen.policy.model import Policy
from wavegen.verify.containers import CHOICE

GROUP = "containers"
SOCKET = "unix:///var/run/docker.sock"


def check_container_engines(machine: Machine, needs: Needs) -> Iterator[Check]:
    """Both; needed is only the one that WAVEGEN_CONTAINER names, of a manifest that says backend: docker."""
    chosen = machine.variables.get(CHOICE) or "docker"
    fences = needs.started_by(BackendName.DOCKER)
    if chosen not in ("docker", "podman"):
        yield failed_check("engine", GROUP, f"WAVEGEN_CONTAINER={chosen} is neither docker nor podman", fences, remedy="set it to one of them")
    for kind, look in (("docker", _check_docker), ("podman", _check_podman)):
        wanted = fences if kind == chosen else ()
        found = look(machine, needs, wanted)
        yield found
        if wanted and found.state is not State.MISSING and _can_inspect_images(machine, kind):
            yield _check_image(machine, needs, kind, wanted)


def _unusable_engine(  # noqa: PLR0913  one for each field
    kind: str, found: str, wanted: tuple[Policy, ...], remedy: str, *, said: str = "", commands: tuple[str, ...] = (), hopeless: bool = False
) -> Check:
    if wanted:
        return failed_check(kind, GROUP, found, wanted, remedy=remedy, said=said, commands=commands, hopeless=hopeless)
    return absent_check(kind, GROUP, found, f"containers of {kind}; this manifest asks for none", remedy=remedy, commands=commands)


def _check_docker(machine: Machine, needs: Needs, wanted: tuple[Policy, ...]) -> Check:
    program = machine.find_trusted_program("docker")
    if not program:
        remedy = "install it: apt install docker.io, or WAVEGEN_CONTAINER=podman for podman"
        return _unusable_engine(
            "docker", "docker is not on the PATH", wanted, remedy, commands=("sudo apt install docker.io",) if wanted else (), hopeless=True
        )
    host = _docker_endpoint(machine, program)
    if host and not host.startswith("unix://"):
        found = f"docker's daemon is remote ({host.partition(':')[0]}) and cannot mount this project"
        return _unusable_engine("docker", found, wanted, f"use the daemon of this machine: DOCKER_HOST={SOCKET}", commands=(f"export DOCKER_HOST={SOCKET}",))
    done = machine.run_program((program, "info", "-f", INFO))
    said = f"{done.out}\n{done.said}"
    if not done.has_succeeded:
        return _diagnose_docker_failure(done, said, program, host.removeprefix("unix://") or SOCKET.removeprefix("unix://"), wanted)
    return _check_docker_info(machine, needs, program, said, wanted)


def _docker_endpoint(machine: Machine, program: str) -> str:
    """Where docker's daemon is; empty: where it always is. No other machine is asked."""
    host = machine.variables.get("DOCKER_HOST", "")
    config = machine.variables.get("DOCKER_CONFIG") or os.path.join(machine.variables.get("HOME", ""), ".docker")
    if host or not machine.file_mode(f"{config}/config.json"):
        return host
    done = machine.run_program((program, "context", "inspect", "-f", "{{.Endpoints.docker.Host}}"))
    return done.out.strip() if done.has_succeeded else ""


def _diagnose_docker_failure(done: Done, said: str, program: str, host: str, wanted: tuple[Policy, ...]) -> Check:
    if "ermission denied" in said:
        remedy = "WAVEGEN_CONTAINER=podman needs no daemon; or join the group docker, whose members are as good as root"
        return _unusable_engine(
            "docker", f"this user may not use docker's daemon at {host}", wanted, remedy, said=said, commands=("export WAVEGEN_CONTAINER=podman",)
        )
    if re.search("annot connect|daemon running|onnection refused|no such file", said):
        remedy = "start it: systemctl start docker; or WAVEGEN_CONTAINER=podman, which needs none"
        return _unusable_engine("docker", f"docker's daemon does not answer at {host}", wanted, remedy, said=said, commands=("sudo systemctl start docker",))
    if "podman" in said or "define." in said:
        found, remedy = f"the docker at {program} is podman", "set WAVEGEN_CONTAINER=podman"
        return _unusable_engine("docker", found, wanted, remedy, commands=("export WAVEGEN_CONTAINER=podman",))
    if done.late:
        return _unusable_engine("docker", "docker does not answer", wanted, "see whether it runs: docker info")
    return _unusable_engine("docker", f"docker's daemon gives no information: {done.last_error_line()}", wanted, "try: docker info", said=said)


def _check_docker_info(machine: Machine, needs: Needs, program: str, said: str, wanted: tuple[Policy, ...]) -> Check:
    """What the daemon says of itself, as the launcher judges it."""
    lines = said.splitlines()
    system = next((line.removeprefix("system=") for line in lines if line.startswith("system=")), "")
    if "Docker Desktop" in system:
        found = "Docker Desktop runs containers in a virtual machine, which shares no sockets with this one"
        return _unusable_engine("docker", found, wanted, "start it by compose: cd .wavegen/docker && docker compose run --rm SHELL")
    if not system.startswith("linux"):
        return _unusable_engine("docker", f"docker runs containers of {system}", wanted, "switch it to Linux containers")
    if any(line.startswith("name=rootless") for line in lines):
        remedy = "set WAVEGEN_CONTAINER=podman, which keeps your user id, or use the system's docker daemon"
        return _unusable_engine(
            "docker", "docker runs rootless here: your user id is root in the container", wanted, remedy, commands=("export WAVEGEN_CONTAINER=podman",)
        )
    if any(line.startswith("name=userns") for line in lines) and machine.variables.get("WAVEGEN_CONTAINER_USERNS") != "host":
        found = "docker remaps user ids (userns-remap), and the remapped user cannot write the project"
        remedy = "set WAVEGEN_CONTAINER_USERNS=host to start this container without the remapping"
        return _unusable_engine("docker", found, wanted, remedy, commands=("export WAVEGEN_CONTAINER_USERNS=host",))
    if any(line.startswith("name=selinux") for line in lines) and (labelled := _check_selinux_label(machine, needs, wanted, "docker")):
        return labelled
    limits = (("MemoryLimit", "memory"), ("PidsLimit", "processes"), ("CPUCfsQuota", "processors"))
    unbounded = [what for name, what in limits if f"{name}=false" in lines]
    if unbounded:
        remedy = "enable these cgroup controllers in the kernel, see the warnings of `docker info`"
        return _unusable_engine("docker", f"this machine's docker cannot bound {' and '.join(unbounded)}", wanted, remedy)
    return passed_check("docker", GROUP, f"{program}, its daemon answers ({system.removeprefix('linux ')})")


def _check_selinux_label(machine: Machine, needs: Needs, wanted: tuple[Policy, ...], kind: str) -> Check | None:
    """SELinux lets containers have only what is labelled for them."""
    if machine.variables.get("WAVEGEN_CONTAINER_LABEL") == "disable" or not needs.root:
        return None
    done = machine.run_program(("stat", "-c", "%C", "--", needs.root))
    label = done.out.strip() if done.has_succeeded else ""
    if ":container_file_t:" in label:
        return None
    found = f"SELinux denies containers access to the project (its label: {label or 'none'})"
    remedy = "set WAVEGEN_CONTAINER_LABEL=disable to start this container without SELinux, or label the project: chcon -R -t container_file_t ."
    return _unusable_engine(kind, found, wanted, remedy, commands=("export WAVEGEN_CONTAINER_LABEL=disable",))


def _check_podman(machine: Machine, needs: Needs, wanted: tuple[Policy, ...]) -> Check:
    """Without asking it for more than its version: anything else would make its directories in a home."""
    program = machine.find_trusted_program("podman")
    if not program:
        found, remedy = "podman is not on the PATH", "install it: apt install podman"
        return _unusable_engine("podman", found, wanted, remedy, commands=("sudo apt install podman",) if wanted else (), hopeless=True)
    done = machine.run_program((program, "--version"))
    if not done.has_succeeded:
        return _unusable_engine("podman", f"{program}: {done.last_error_line()}", wanted, "try: podman info", said=done.said)
    found = f"{program} {done.out.strip().rpartition(' ')[2]}"
    if machine.file_mode("/sys/fs/selinux/enforce") and (labelled := _check_selinux_label(machine, needs, wanted, "podman")):
        return labelled
    if machine.uid == 0:
        return passed_check("podman", GROUP, f"{found}, as root")
    name = _user_name(machine.uid)
    lacking = [file for file in ("/etc/subuid", "/etc/subgid") if not _has_subordinate_ids(machine.read_text_file(file) or "", name, machine.uid)]
    lacking += [tool for tool in ("newuidmap", "newgidmap") if not machine.find_trusted_program(tool)]
    if lacking:
        commands = ("sudo apt install uidmap", 'sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 "$(id -un)"', "podman system migrate")
        what = f"{found}, but this user has no further ids ({', '.join(lacking)})"
        return _unusable_engine("podman", what, wanted, "install uidmap and give the user ids", commands=commands)
    if not machine.file_mode("/sys/fs/cgroup/cgroup.controllers"):
        costs = "rootless podman sets no limits on cgroup version 1"
        return weaker_check("podman", GROUP, found, costs, remedy="boot with systemd.unified_cgroup_hierarchy=1", fences=wanted)
    return passed_check("podman", GROUP, f"{found}, rootless")


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def _has_subordinate_ids(text: str, name: str, uid: int) -> bool:
    return any(line.partition(":")[0] in ({name, str(uid)} - {""}) for line in text.splitlines())


def _can_inspect_images(machine: Machine, kind: str) -> bool:
    """Whether it can be asked for an image: a user's podman would make its store first."""
    if kind == "docker" or machine.uid == 0:
        return True
    data = machine.variables.get("XDG_DATA_HOME") or os.path.join(machine.variables.get("HOME", ""), ".local/share")
    return machine.file_mode(f"{data}/containers/storage") != 0


def _check_image(machine: Machine, needs: Needs, kind: str, wanted: tuple[Policy, ...]) -> Check:
    reference = needs.plan.image.reference
    done = machine.run_program((machine.find_trusted_program(kind), "image", "inspect", "-f", "{{.Id}}", reference))
    if done.has_succeeded:
        return passed_check("image", GROUP, f"{reference} is here")
    build = f"{kind} build -t {quote_bash(reference)} .wavegen/docker" if needs.plan.image.local else f"{kind} pull {quote_bash(reference)}"
    return failed_check("image", GROUP, f"the image {reference} is not here", wanted, remedy=build, said=done.said, commands=(build,))
