"""Docker or podman: which client starts a container, by which environment, and what the engine says of itself and of the image."""

from __future__ import annotations

import posix
import time

from . import libc
from .errors import CannotStartError, escape_unprintable
from .places import SYSTEM_PATH
from .symlinks import is_within, resolve_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .start import Session

PATIENCE = 30.0
"""Seconds for an engine's answer."""
INFO = (
    "{{range .SecurityOptions}}{{.}}{{println}}{{end}}cpus={{.NCPU}}{{println}}system={{.OSType}} {{.OperatingSystem}}{{println}}"
    "MemoryLimit={{.MemoryLimit}}{{println}}PidsLimit={{.PidsLimit}}{{println}}CPUCfsQuota={{.CPUCfsQuota}}{{println}}"
)
"""What docker's daemon is asked about itself."""
_IMAGE = "{{range $path, $_ := .Config.Volumes}}volume={{$path}}{{println}}{{end}}{{range .Config.Env}}variable={{.}}{{println}}{{end}}"
_PODMAN = ("--env-host=false", "--sdnotify=ignore", "--http-proxy=false", "--read-only-tmpfs=false", "--no-hosts", "--passwd=false", "--stop-timeout", "0")
"""What docker leaves to the daemon's defaults: the host's proxies and variables, writable /run and /tmp, names of the host, ten seconds to end."""
_UNBOUNDED = {"MemoryLimit=false": "memory", "PidsLimit=false": "processes", "CPUCfsQuota=false": "processors"}
_LARGEST = 1 << 20
_GONE = ("o such container", "o container with")


class Engine:
    """A client, what it is started with, and as whom the container runs."""

    def __init__(self, session: Session) -> None:
        """Raises CannotStartError. `program` is empty where there is none."""
        self.session, self.caller, self.places = session, session.caller, session.places
        self.kind = self.caller.get("WAVEGEN_CONTAINER") or "docker"
        if self.kind not in ("docker", "podman"):
            raise CannotStartError(f"WAVEGEN_CONTAINER={self.kind} is neither docker nor podman", "set it to one of them")
        self.is_podman = self.kind == "podman"
        self.how_to_install = (
            "install it: apt install podman" if self.is_podman else "install it: apt install docker.io, or WAVEGEN_CONTAINER=podman for podman"
        )
        self.program = session.locate_program(self.kind)
        self.image_variables: list[str] = []
        self._image = ""
        self._asked: list[tuple[str, object]] = []
        self.uid, self.gid = posix.geteuid(), posix.getegid()
        if self.program:
            self.environment = self._client_environment()
            self._choose_owner()

    def _client_environment(self) -> dict[str, str]:
        """The client's own variables: the caller's would name settings, hooks and plugins, which a project's `.env` could set."""
        home = self.places.home
        found = {"PATH": SYSTEM_PATH, "HOME": home, "LANG": "C.UTF-8", "PODMAN_IGNORE_CGROUPSV1_WARNING": "1"}
        for path in (f"{home}/.config/containers", f"{home}/.local/share/containers") if self.is_podman else (f"{home}/.docker",):
            self._refuse_written(path)
        if not self.is_podman:
            found["DOCKER_CONFIG"] = f"{self.places.state}/no-settings"  # those of a user put proxies, with their passwords, into every container
            host = self._daemon_endpoint()
            return {**found, "DOCKER_HOST": host} if host else found
        runtime = self.caller.get("XDG_RUNTIME_DIR", "")
        if self.session.host.uid and runtime.startswith("/"):
            self._refuse_written(runtime)
            found["XDG_RUNTIME_DIR"] = runtime
        import pwd

        try:
            found["USER"] = found["LOGNAME"] = pwd.getpwuid(posix.geteuid()).pw_name
        except KeyError:
            pass
        return found

    def _refuse_written(self, path: str) -> None:
        """Raise CannotStartError for a place with settings of the client that a command may write."""
        try:
            real = resolve_path(self.session.host, path) or path
        except OSError:
            real = path
        for place in self.places.written:
            if any(is_within(name, place) or is_within(place, name) for name in (path, real)) and place != self.places.state:
                raise CannotStartError(f"a shell may write {path}, which {self.kind} obeys", "grant no place there, or use bubblewrap")

    def _daemon_endpoint(self) -> str:
        """Where docker's daemon listens; empty for its usual place. A remote one would look for the project on its own machine."""
        host = self.caller.get("DOCKER_HOST", "") or self._endpoint_of_context()
        if not host:
            return ""
        if not host.startswith("unix://"):
            raise CannotStartError(
                f"docker's daemon is remote ({host.partition(':')[0]}) and cannot mount this project",
                "use the daemon of this machine: DOCKER_HOST=unix:///var/run/docker.sock",
            )
        self._refuse_written(host[7:])
        return host

    def _endpoint_of_context(self) -> str:
        """What the user's settings name, read without starting the client, whose plugins they name, too."""
        import json
        from hashlib import sha256

        directory = f"{self.places.home}/.docker"
        try:
            name = json.loads(self.session.host.read_host_file(f"{directory}/config.json", _LARGEST)).get("currentContext") or "default"
            if name == "default":
                return ""
            found = json.loads(self.session.host.read_host_file(f"{directory}/contexts/meta/{sha256(name.encode()).hexdigest()}/meta.json", _LARGEST))
            return str(found["Endpoints"]["docker"]["Host"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return ""

    def _choose_owner(self) -> None:
        """Root's containers run as the project's owner."""
        if self.uid:
            return
        status = self.session.host.lstat(self.places.project)
        if not status.st_uid:
            raise CannotStartError(
                "the project belongs to root, and nothing in a container runs as root",
                "give it to a user: chown -R USER:GROUP the project, or start this as a user",
            )
        # A directory of root's group may be somebody's who is not in it.
        self.uid, self.gid = status.st_uid, status.st_gid or status.st_uid

    # --- what the engine says

    def query_engine(self, image: str) -> None:
        """Ask about the engine and the image, both at once: each takes a daemon as long as bwrap takes for a whole start."""
        import subprocess

        self._image = image
        questions = [] if self.is_podman else [("info", ["info", "-f", INFO])]
        parent = posix.getpid()
        for what, words in [*questions, ("image", ["image", "inspect", "-f", _IMAGE, image])]:
            process = subprocess.Popen(
                [self.program, *words], env=self.environment, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                preexec_fn=lambda: libc.end_with_parent(parent),  # noqa: PLW1509  there is one thread
            )  # fmt: skip
            self._asked.append((what, process))

    def _collect_answers(self) -> Iterator[tuple[str, int, list[str]]]:
        import subprocess

        until = time.monotonic() + PATIENCE
        for what, process in self._asked:
            try:
                said, _ = process.communicate(timeout=max(0.1, until - time.monotonic()))  # type: ignore[attr-defined]
            except subprocess.TimeoutExpired:
                for _, other in self._asked:
                    other.kill()  # type: ignore[attr-defined]
                raise CannotStartError(f"{self.kind} does not answer", f"see whether it runs: {self.kind} info") from None
            yield what, process.returncode, said.decode("utf-8", "replace").splitlines()  # type: ignore[attr-defined]

    def read_engine_answers(self) -> list[str]:
        """The words that come of the answers. Raises CannotStartError where the engine cannot start this container."""
        try:
            answers = {what: (status, lines) for what, status, lines in self._collect_answers()}
        except KeyboardInterrupt:
            posix._exit(130)  # noqa: SLF001  the clients end with this process
        words = self._podman_words() if self.is_podman else self._docker_words(*answers["info"], answers["image"][1])
        return words + self._image_words(*answers["image"])

    def _docker_words(self, status: int, lines: list[str], of_image: list[str]) -> list[str]:
        words: list[str] = []
        if status:
            # The client of 20.10 stumbles over its own template where no daemon answers; the other question says why.
            self._refuse_daemon(lines, " ".join(lines + (of_image if "template:" in " ".join(lines) else [])))
        for line in lines:
            if line.startswith("cpus="):
                words += self._processor_words(int(line[5:]))
            elif line.startswith("system=") and "Docker Desktop" in line:
                raise CannotStartError(
                    "Docker Desktop runs containers in a virtual machine, which shares no sockets with this one",
                    f"start it by compose: cd .wavegen/docker && docker compose run --rm {self.session.rules.setting_value('shell')}",
                )
            elif line.startswith("system=") and not line.startswith("system=linux"):
                raise CannotStartError(f"docker runs containers of {line[7:]}", "switch it to Linux containers")
            elif line.startswith("name=rootless"):
                raise CannotStartError(
                    "docker runs rootless here: your user id is root in the container",
                    "set WAVEGEN_CONTAINER=podman, which keeps your user id, or use the system's docker daemon",
                )
            elif line.startswith("name=userns"):
                if self.caller.get("WAVEGEN_CONTAINER_USERNS") != "host":
                    raise CannotStartError(
                        "docker remaps user ids (userns-remap), and the remapped user cannot write the project",
                        "set WAVEGEN_CONTAINER_USERNS=host to start this container without the remapping",
                    )
                words += ["--userns", "host"]
            elif line.startswith("name=selinux"):
                words += self._label_words()
            elif line in _UNBOUNDED and (line[:3] != "CPU" or self.session.rules.setting_value("cpus")):
                raise CannotStartError(
                    f"this machine's docker cannot bound {_UNBOUNDED[line]}", "enable these cgroup controllers in the kernel, see the warnings of `docker info`"
                )
        return [*words, *self._memory_words()]

    def _refuse_daemon(self, lines: list[str], said: str) -> None:
        where = self.environment.get("DOCKER_HOST", "/var/run/docker.sock")
        if "ermission denied" in said:
            raise CannotStartError(
                f"this user may not use docker's daemon at {where}",
                "WAVEGEN_CONTAINER=podman needs no daemon; or join the group docker, whose members are as good as root",
            )
        if any(part in said for part in ("annot connect", "daemon running", "onnection refused", "no such file")):
            raise CannotStartError(
                f"docker's daemon does not answer at {where}", "start it: systemctl start docker; or WAVEGEN_CONTAINER=podman, which needs none"
            )
        if "podman" in said or "define." in said:
            raise CannotStartError(f"the docker at {self.program} is podman", "set WAVEGEN_CONTAINER=podman")
        raise CannotStartError(f"docker's daemon gives no information: {escape_unprintable(lines[0]) if lines else ''}", "try: docker info")

    def _processor_words(self, there: int) -> list[str]:
        """More processors than there are would be an error."""
        wanted = int(self.session.rules.setting_value("cpus") or 0)
        cpus = min(wanted, there * 100_000)
        return ["--cpus", f"{cpus // 100_000}.{cpus % 100_000:05d}"] if cpus else []

    def _memory_words(self) -> list[str]:
        from .bwrap_start import granted_memory

        memory = str(granted_memory(self.session.rules))
        return ["--memory", memory, "--memory-swap", memory]

    def _label_words(self) -> list[str]:
        """SELinux lets containers have only what is labelled for them."""
        if self.caller.get("WAVEGEN_CONTAINER_LABEL") == "disable":
            return ["--security-opt", "label=disable"]
        try:
            label = posix.getxattr(self.places.project, "security.selinux").rstrip(b"\0").decode("utf-8", "replace")
        except OSError:
            label = ""
        if ":container_file_t:" not in label:
            raise CannotStartError(
                f"SELinux denies containers access to the project (its label: {label or 'none'})",
                "set WAVEGEN_CONTAINER_LABEL=disable to start this container without SELinux, or label the project: chcon -R -t container_file_t .",
            )
        return []

    def _podman_words(self) -> list[str]:
        rules, is_user = self.session.rules, self.session.host.uid != 0
        words = [*_PODMAN, *self._processor_words(posix.sysconf("SC_NPROCESSORS_ONLN"))]
        words += ["--userns", "keep-id"] if is_user else self._own_limits()
        if rules.setting_value("network") != "host":
            words += ["--sysctl", "net.ipv4.ip_unprivileged_port_start=0"]
        if posix.access("/sys/fs/selinux/enforce", posix.F_OK):
            words += self._label_words()
        # What --init starts is a package of its own, which podman can do without. Any that needs no library of the image does it.
        places = ("/usr/libexec/podman", "/usr/local/libexec/podman", "/usr/local/lib/podman", "/usr/lib/podman")
        if not any(posix.access(f"{place}/catatonit", posix.X_OK) for place in places):
            first = next(filter(None, map(self.session.locate_program, ("catatonit", "tini-static", "docker-init"))), "")
            words += ["--init-path", first] if first else []
        if is_user and not posix.access("/sys/fs/cgroup/cgroup.controllers", posix.F_OK):
            if not self.session.arguments.wants_print:
                self.session.note_once("unbounded-podman", "rootless podman sets no limits on cgroup version 1")
            # It would mount the host's there, as they are.
            words += ["--security-opt", "mask=/sys/fs/cgroup"]
        return [*words, *self._memory_words()]

    def _own_limits(self) -> list[str]:
        """Root's podman raises what is not named, which root may not everywhere: not in a container."""
        import resource

        with open("/proc/sys/kernel/pid_max", encoding="ascii") as stream:
            most = int(stream.read())
        words = []
        for name, which in (("nproc", resource.RLIMIT_NPROC), ("nofile", resource.RLIMIT_NOFILE)):
            soft, _ = resource.getrlimit(which)
            if soft != resource.RLIM_INFINITY:
                # It gives itself no more processes than there are numbers, and then cannot give more.
                soft = min(soft, most) if name == "nproc" else soft
                words += ["--ulimit", f"{name}={soft}:{soft}"]
        return words

    def _image_words(self, status: int, lines: list[str]) -> list[str]:
        image, words = self._image, []
        if status:
            said = " ".join(lines)
            if any(part in said for part in ("o such image", "image not known", "o such object")):
                is_local = image.startswith(("wavegen/", "localhost/"))
                build, fetch = f"build it: {self.kind} build -t {image} .wavegen/docker", f"fetch it: {self.kind} pull {image}; or {self.kind} load"
                raise CannotStartError(f"the image {image} is not here", build if is_local else fetch)
            raise CannotStartError(
                f"{self.kind} says of the image {image}: {escape_unprintable(lines[0]) if lines else ''}", f"try: {self.kind} image inspect {image}"
            )
        from .container_mounts import quote_mount_field

        for line in lines:
            if line.startswith("volume="):
                # It would be a directory on the disk, writable whatever --read-only says.
                words += ["--mount", f"type=tmpfs,{quote_mount_field('target', line[7:])},tmpfs-size={self.session.rules.setting_value('tmpfs_size')}"]
            elif line.startswith("variable="):
                self.image_variables.append(line[9:].partition("=")[0])
                stores = f":{self.caller.get('PATH', '')}"
                if line.startswith("variable=PATH=") and ("/nix/store" in line or "/nix/var" in line) and ":/nix/store/" in stores:
                    raise CannotStartError(f"the programs of the image {image} lie where the host's /nix/store is shown", "start it outside of the Nix shell")
        return words

    # --- the end

    def state_of(self, name: str) -> str:
        """What the engine says of a container: created, running, exited, ...; empty where it says nothing."""
        return (self._run_client_quietly("container", "inspect", "-f", "{{.State.Status}}", name) or "").strip()

    def remove_unstarted(self, name: str) -> None:
        """Remove a container; the engine refuses that where it runs."""
        self._run_client_quietly("rm", name)

    def remove_container(self, name: str) -> bool:
        """End a container and remove it; whether it is gone."""
        for _ in range(15):
            said = self._run_client_quietly("rm", "-f", name)
            # A client names what it has removed, or says that there is none; podman may say nothing of one that never was.
            if said is not None and (said.strip() == name or any(part in said for part in _GONE)):
                return True
            asked = self._run_client_quietly("container", "inspect", "-f", ".", name)
            if asked is not None and any(part in asked for part in _GONE):
                return True
            time.sleep(0.1)
        return False

    def _run_client_quietly(self, *words: str) -> str | None:
        import subprocess

        try:
            done = subprocess.run(
                [self.program, *words], env=self.environment, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                timeout=PATIENCE, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.decode("utf-8", "replace")
