"""Manifest → Plan: defaults, inheritance, checks across fields, order. Pure: the same manifest is always the same plan.

Longer than 400 lines: the one way of a manifest to its plan.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from wavegen.core.errors import InvalidValueError, Location, ManifestError, Problem, Severity
from wavegen.launcher.egress.ports import PROXY_PORTS
from wavegen.manifest.decoder import Decoder, Text
from wavegen.manifest.model import BackendName, DomainEntry, Home, Manifest, NetworkMode, Output, Sandbox, Seccomp, Shell
from wavegen.manifest.model import Limits as LimitsKeys
from wavegen.manifest.yaml_nodes import Messages, Source, parse_yaml
from wavegen.manifest.yaml_nodes import merge_overlay as lay_over
from wavegen.policy import defaults
from wavegen.policy.domains import denied_rule, domain_advice, domain_rule
from wavegen.policy.image_plan import ATTRIBUTE, image_of, origin_of_key
from wavegen.policy.known_agents import hosts_of, kind_of
from wavegen.policy.model import Anchor, DomainRule, EnvRule, HostPath, Limits, Network, Origin, Package, Plan, Policy
from wavegen.policy.path_rules import OWN_FILES, path_rules
from wavegen.policy.paths import host_path
from wavegen.policy.persona_planner import NAME, FenceOf, Roles
from wavegen.seccomp.filters import opened_calls

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIZE = re.compile(r"([0-9]{1,18})([kmgt]?)", re.IGNORECASE)
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_PORT_MAX = 65535
# With fewer a shell, its compiler and the fence do not start.
_FEWEST_PIDS, _FEWEST_FILES, _LEAST_CPUS, _MOST = 16, 64, 0.01, 1_000_000
_LEAST_MEMORY = 32 * 1024**2
_OURS = ("persona-", "landlock-", "egress-")
_FILES = ("base", "directory", "notice")
"""Beside the rules of a shell lie the groups that all use, and beside its home what is known of the project (launcher/start.py)."""
_Entry = Text | DomainEntry
_BUILT_IN: Mapping[str, Shell] = {
    "default": Shell(network=NetworkMode.HOST),
    "restricted": Shell(network=NetworkMode.FILTERED),
    "yolo": Shell(sandbox=False),
}


def plan_manifest(manifest: Source, overlay: Source | None, overlay_name: str) -> Plan:
    """The plan of a manifest and what is laid over it. Raises ManifestError with every problem found."""
    messages = Messages()
    base = parse_yaml(manifest, messages)
    top = parse_yaml(overlay, messages) if overlay else None
    decoded = Decoder(messages).decode_dataclass(Manifest, lay_over(base, top) if top else base) if base else None
    if decoded is None:
        messages.raise_if_errors()
    work = _Planner(decoded or Manifest(), list(messages.problems), manifest.name, overlay_name, overlay is not None)
    result = work.build_plan()
    if any(p.severity is Severity.ERROR for p in work.problems):
        raise ManifestError(tuple(work.problems), messages.sources)
    return replace(result, notes=tuple(sorted(work.problems, key=Problem.source_order)))


@dataclass(slots=True)
class _Planner:
    manifest: Manifest
    problems: list[Problem]
    file: str
    overlay: str
    overlaid: bool
    sandbox: Sandbox = field(init=False)

    def __post_init__(self) -> None:
        self.sandbox = self.manifest.runtime.sandbox or Sandbox()

    # --- messages

    def add_error(self, at: Location, what: str, hint: str) -> None:
        self.problems.append(Problem(at=at, severity=Severity.ERROR, what=what, hint=hint))

    def add_warning(self, at: Location, what: str, hint: str) -> None:
        self.problems.append(Problem(at=at, severity=Severity.WARNING, what=what, hint=hint))

    # --- the whole

    def build_plan(self) -> Plan:
        manifest, sandbox = self.manifest, self.sandbox
        name = (manifest.metadata.name or "").strip()
        if not name:
            self.add_error(
                manifest.metadata.at.here if manifest.metadata.at.here.file else Location(self.file), "metadata.name is missing", "give the project a name"
            )
        names = dict.fromkeys((*_BUILT_IN, *sandbox.shells))
        shells = tuple(self._plan_shell(shell) for shell in names)
        backend = sandbox.backend or BackendName.BUBBLEWRAP
        off = "enabled: false" if not sandbox.enabled else "backend: none" if backend is BackendName.NONE else ""
        return Plan(
            name=name,
            description=manifest.metadata.description or "",
            manifest=self.file,
            overlay=self.overlay,
            overlaid=self.overlaid,
            enabled=not off,
            enabled_origin=origin_of_key(sandbox.at, "enabled" if not sandbox.enabled else "backend", off or "fenced"),
            backend=backend,
            backend_origin=origin_of_key(sandbox.at, "backend", "bubblewrap"),
            outputs=frozenset((*sandbox.outputs, *((Output.DOCKER,) if backend is BackendName.DOCKER else ()))),
            vendored=self._vendors_launcher(backend),
            image=image_of(manifest, name, Location(self.file), self._report_once),
            shells=shells,
            personas=Roles(
                manifest=manifest,
                sandbox=sandbox,
                shells=shells,
                domains=self._domain_rules,
                bounded=self._add_global_rules,
                fence=self._plan_persona_fence,
                enabled=not off,
                report=self._report_once,
            ).plan_personas(),
            personas_origin=origin_of_key(manifest.at, "personas", "none"),
            unfree=tuple(sorted({str(u) for u in sandbox.unfree})),
            package=self._package_file(),
            notes=(),
        )

    def _package_file(self) -> HostPath | None:
        text = self.sandbox.package
        if text is None:
            return None
        try:
            path = host_path(text)
        except InvalidValueError as bad:
            self.add_error(text.at, f"package: {bad.what}", bad.hint)
            return None
        if path.anchor is not Anchor.PROJECT or not path.tail.endswith(".nix"):
            self.add_error(text.at, f"package: '{text}' is not a .nix file of this project", "write it as nix/package.nix")
        # The name that nix/shells.nix gives it, beside the shells.
        output = re.sub(r"[^A-Za-z0-9_-]", "-", self.manifest.metadata.name or "")
        if output in {*_BUILT_IN, *self.sandbox.shells}:
            self.add_error(text.at, f"package: the flake would have two packages called '{output}', this one and a shell", "rename the project or the shell")
        return path

    # --- one shell

    def _plan_shell(self, name: str) -> Policy:
        sandbox = self.sandbox
        built_in = _BUILT_IN.get(name)
        written = sandbox.shells.get(name)
        shell = written or built_in or Shell()
        at = next((key.at for key in sandbox.shells if key == name and isinstance(key, Text)), None)
        if not NAME.fullmatch(name) and at:
            self.add_error(at, f"'{name}' cannot name a shell", "letters, digits, - and _, at most 64")
        if name.startswith(_OURS) and at:
            self.add_error(at, f"'{name}': names that begin with persona-, landlock- and egress- are those of generated scripts", "choose another name")
        if (name in _FILES or name.startswith("entered-")) and at:
            self.add_error(at, f"'{name}' is the name of a file of wavegen's", "choose another name")
        fenced = shell.sandbox
        if name == "yolo":
            # The one name whose meaning everybody knows must keep it, in both directions.
            if written is not None and "sandbox" in written.at and written.sandbox:
                self.add_error(written.at.location_of("sandbox"), "yolo is the shell without a fence", "give the fenced shell another name")
            fenced = False
        elif name in _BUILT_IN and not fenced:
            self.add_error(shell.at.location_of("sandbox"), f"{name} is always fenced", "use yolo, or a shell of your own")
            fenced = True
        network = self._plan_network(shell, built_in)
        minimal = network.mode is not NetworkMode.HOST
        paths = path_rules(self.sandbox, shell, own=self._sandbox_files(), network=network.mode, report=self._report_once) if fenced else ()
        return Policy(
            name=name,
            origin=Origin("", at) if at else Origin("every manifest has it"),
            fenced=fenced,
            nested=shell.nested,
            minimal_root=minimal,
            private_home=sandbox.home is Home.PRIVATE,
            network=network,
            paths=paths,
            environment=self._plan_environment(name, shell, network.mode) if fenced else (),
            limits=self._plan_limits(),
            seccomp=sandbox.seccomp,
            seccomp_origin=origin_of_key(sandbox.at, "seccomp", "the usual filter"),
            seccomp_allow=self._seccomp_allow(),
            seccomp_allow_origin=origin_of_key(sandbox.at, "seccomp_allow", "nothing is let through that the filter refuses"),
            packages=self._plan_packages((*sandbox.packages, *shell.packages)),
            fallback=sandbox.fallback,
        )

    def _vendors_launcher(self, backend: BackendName) -> bool:
        if not self.sandbox.vendor and backend is BackendName.LANDLOCK:
            what = "vendor: false with backend: landlock: scripts of Landlock start the launcher that is rendered"
            self.add_error(self.sandbox.at.location_of("vendor"), what, "remove one of the two lines")
        return self.sandbox.vendor

    def _sandbox_files(self) -> dict[str, bool]:
        """The fence's files in the project, and whether they must be there."""
        flake = Output.FLAKE in self.sandbox.outputs and self.sandbox.vendor
        return {self.file: True, self.overlay: self.overlaid, **{name: flake or not name.startswith("flake.") for name in OWN_FILES}}

    def _plan_persona_fence(self, wanted: FenceOf) -> Policy:
        """The fence of a persona: its shell's, narrower."""
        base = wanted.shell
        shell = self.sandbox.shells.get(base.name) or _BUILT_IN.get(base.name) or Shell()
        mode = wanted.network.mode
        listed = {str(entry) for entry in (*self.sandbox.env_passthrough, *shell.env_passthrough)}
        usual = {rule.name for rule in defaults.PASSED}
        kept = listed if wanted.passed is None else usual | set(wanted.passed)
        environment = (
            rule
            for rule in self._plan_environment(wanted.name, shell, mode if wanted.fenced else NetworkMode.HOST)
            if rule.value is not None or rule.name not in listed or rule.name in kept
        )
        paths = path_rules(
            self.sandbox,
            shell,
            own=self._sandbox_files(),
            network=mode,
            report=self._report_once,
            more=wanted.emptied,
            deny=wanted.deny,
            read_only=wanted.read_only,
        )
        return replace(
            base,
            name=wanted.name,
            origin=wanted.origin,
            fenced=wanted.fenced,
            minimal_root=mode is not NetworkMode.HOST,
            network=wanted.network,
            paths=paths if wanted.fenced else (),
            environment=(*environment, *wanted.variables),
        )

    def _add_global_rules(self, network: Network) -> Network:
        """A shell's network with the rules that hold everywhere, which the host's own network has no use for."""
        return (
            replace(network, denied=self._denied_domain_rules(self.sandbox.denied_domains), upstream=self._upstream_origin())
            if network.mode is NetworkMode.HOST
            else network
        )

    # --- network

    def _plan_network(self, shell: Shell, built_in: Shell | None) -> Network:
        mode = shell.network or (built_in.network if built_in else None) or NetworkMode.FILTERED
        written = shell.network is not None and "network" in shell.at
        origin = (
            Origin("", shell.at.location_of("network"))
            if written
            else Origin("filtered unless the manifest says otherwise" if not built_in else f"{mode.value} is what this shell is for")
        )
        if not shell.sandbox or (built_in is not None and not built_in.sandbox):
            mode = NetworkMode.HOST
        self._check_unused_keys(shell, mode)
        denied = self._denied_domain_rules((*self.sandbox.denied_domains, *shell.denied_domains))
        domains: tuple[DomainRule, ...] = ()
        if mode is NetworkMode.FILTERED:
            domains = self._domain_rules(shell.domains) if shell.domains is not None else self._default_domains()
            if not domains and not shell.loopback:
                mode = NetworkMode.NONE
        elif mode is NetworkMode.HOST and self.sandbox.default_allowed_domains is not None:
            domains = self._domain_rules(self.sandbox.default_allowed_domains)
        network = Network(mode=mode, origin=origin, domains=domains, loopback=tuple(sorted(set(shell.loopback))))
        return replace(network, denied=denied, upstream=self._upstream_origin()) if mode.is_filtered else network

    def _check_unused_keys(self, shell: Shell, mode: NetworkMode) -> None:
        """Say what is no port, and which keys of a shell have no effect with its network."""
        if shell.domains is not None and mode is not NetworkMode.FILTERED:
            self.add_error(shell.at.location_of("domains"), f"domains have no effect with network: {mode.value}", "set network: filtered, or remove them")
        if shell.denied_domains and not mode.is_filtered:
            hint = "set network: open or filtered, or remove them"
            self.add_error(shell.at.location_of("denied_domains"), f"denied_domains have no effect with network: {mode.value}", hint)
        for port in shell.loopback:
            if not 0 < port <= _PORT_MAX:
                self.add_error(shell.at.location_of("loopback"), f"{port} is not a port", "write numbers from 1 to 65535")
            if port in PROXY_PORTS:
                self.add_error(
                    shell.at.location_of("loopback"),
                    f"{port} is where the shell's own proxies and names are answered",
                    "let the host's service listen elsewhere",
                )
        if shell.loopback and not mode.is_filtered:
            self.add_warning(shell.at.location_of("loopback"), f"loopback has no effect with network: {mode.value}", "it is for open and filtered")

    def _upstream_origin(self) -> Origin | None:
        return Origin("", self.sandbox.at.location_of("upstream_proxy")) if self.sandbox.upstream_proxy else None

    def _default_domains(self) -> tuple[DomainRule, ...]:
        listed = self.sandbox.default_allowed_domains
        if listed is not None:
            return self._domain_rules(listed)
        hosts: dict[str, Origin] = {}
        for name, adapter in self.manifest.adapters.items():
            for host in hosts_of(kind_of(str(adapter.binary or name)), str(adapter.default_model or "")):
                hosts.setdefault(host, Origin(f"API host of adapter {name}", adapter.at.here))
        # Wave takes personas whose adapter is declared nowhere, and so do we.
        for wanted in (persona.adapter for persona in self.manifest.personas.values() if persona.adapter):
            for host in hosts_of(kind_of(wanted), "") if wanted not in self.manifest.adapters else ():
                hosts.setdefault(host, Origin(f"API host of {wanted}", wanted.at))
        return tuple(DomainRule(host=host, wildcard=False, port="", origin=origin, api=True) for host, origin in sorted(hosts.items()))

    def _domain_rules(self, entries: Iterable[_Entry]) -> tuple[DomainRule, ...]:
        rules: dict[str, DomainRule] = {}
        for entry in entries:
            rule = self._parse_domain(domain_rule, entry)
            if rule is None:
                continue
            if problem := domain_advice(rule):
                self._report_once(problem)
            first = rules.setdefault(str(rule), rule)
            if first.extra_flags() != rule.extra_flags():
                what = f"'{rule}' stands here and at {first.origin} with different flags"
                self._report_once(Problem(at=rule.origin.at, severity=Severity.ERROR, what=what, hint="keep the entry that is meant"))
        return tuple(rules[name] for name in sorted(rules))

    def _denied_domain_rules(self, entries: Iterable[Text]) -> tuple[DomainRule, ...]:
        rules: dict[str, DomainRule] = {}
        for entry in entries:
            if rule := self._parse_domain(denied_rule, entry):
                rules.setdefault(str(rule), rule)
        return tuple(rules[name] for name in sorted(rules))

    def _parse_domain(self, read: Callable[[_Entry], DomainRule], entry: _Entry) -> DomainRule | None:
        try:
            return read(entry)
        except InvalidValueError as bad:
            at = entry.host.at if isinstance(entry, DomainEntry) else entry.at
            self._report_once(Problem(at=at, severity=Severity.ERROR, what=bad.what, hint=bad.hint))
            return None

    def _report_once(self, problem: Problem) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    # --- environment, limits, packages

    def _plan_environment(self, name: str, shell: Shell, network: NetworkMode) -> tuple[EnvRule, ...]:
        rules = {rule.name: rule for rule in defaults.PASSED}
        proxies = defaults.PROXIES if network.is_filtered else ()
        made = {*defaults.MADE_BY_THE_FENCE, *(rule.name for rule in proxies)}
        for entry in (*self.sandbox.env_passthrough, *shell.env_passthrough):
            if not _VARIABLE.fullmatch(entry):
                self._report_once(
                    Problem(
                        at=entry.at,
                        severity=Severity.ERROR,
                        what=f"'{entry}' cannot name a variable",
                        hint="letters, digits and _; the name alone, without a value",
                    )
                )
            elif entry in made:
                self._report_once(Problem(at=entry.at, severity=Severity.NOTE, what=f"{entry} is set by the fence; the entry has no effect", hint="remove it"))
            else:
                if reason := defaults.variable_danger(entry):
                    self._report_once(Problem(at=entry.at, severity=Severity.WARNING, what=f"{entry} {reason}", hint="remove it unless that is meant"))
                rules.pop(entry, None)
                rules[entry] = EnvRule(name=str(entry), value=None, origin=Origin("", entry.at))
        own = (
            EnvRule(name="SANDBOX_ACTIVE", value="1", origin=Origin("for prompts and scripts; proves nothing")),
            EnvRule(name="WAVEGEN_SHELL", value=name, origin=Origin("for prompts and scripts; proves nothing")),
        )
        return (*rules.values(), *defaults.FIXED, *proxies, *own)

    def _plan_limits(self) -> Limits:
        keys = self.sandbox.limits or LimitsKeys()
        for name, value, least in (("pids", keys.pids, _FEWEST_PIDS), ("cpus", keys.cpus, _LEAST_CPUS), ("files", keys.files, _FEWEST_FILES)):
            if value is not None and not least <= value <= _MOST:
                what = f"limits.{name} must be from {least} to {_MOST}"
                self._report_once(Problem(at=keys.at.location_of(name), severity=Severity.ERROR, what=what, hint="remove it for the default"))
        return Limits(
            pids=keys.pids if keys.pids is not None else defaults.PIDS,
            memory=self._parse_size("memory", keys.memory),
            cpus=keys.cpus,
            files=keys.files if keys.files is not None else defaults.FILES,
            written=any(value is not None for value in (keys.pids, keys.memory, keys.cpus)),
            scratch=self._parse_size("tmp", keys.tmp) or defaults.SCRATCH_SIZE,
            origin=origin_of_key(self.sandbox.at, "limits", "so that the host stays responsive"),
        )

    def _seccomp_allow(self) -> tuple[str, ...]:
        for entry in self.sandbox.seccomp_allow:
            try:
                opened_calls((str(entry),))
            except InvalidValueError as bad:
                self._report_once(Problem(at=entry.at, severity=Severity.ERROR, what=f"seccomp_allow: {bad.what}", hint=bad.hint))
                return ()
        if self.sandbox.seccomp_allow and self.sandbox.seccomp is Seccomp.OFF:
            self._report_once(
                Problem(
                    at=self.sandbox.at.location_of("seccomp_allow"),
                    severity=Severity.WARNING,
                    what="seccomp_allow has no effect with seccomp: off",
                    hint="remove one of them",
                )
            )
        return opened_calls(tuple(map(str, self.sandbox.seccomp_allow)))

    def _parse_size(self, name: str, text: Text | None) -> int | None:
        if text is None:
            return None
        match = _SIZE.fullmatch(text)
        size = int(match[1]) * _UNITS[match[2].lower()] if match else 0
        # bwrap takes the size of a tmpfs as a signed 64-bit number.
        if name == "memory" and 0 < size < _LEAST_MEMORY:
            self._report_once(Problem(at=text.at, severity=Severity.ERROR, what=f"limits.memory: '{text}' is too little for a shell", hint="write 32m or more"))
        if not 0 < size < 2**62:
            self._report_once(Problem(at=text.at, severity=Severity.ERROR, what=f"limits.{name}: '{text}' is not a size", hint="write 512m or 4g"))
            return None
        return size

    def _plan_packages(self, entries: Iterable[Text]) -> tuple[Package, ...]:
        packages: dict[str, Package] = {}
        for entry in entries:
            if not ATTRIBUTE.fullmatch(entry):
                self._report_once(
                    Problem(
                        at=entry.at,
                        severity=Severity.ERROR,
                        what=f"'{entry}' is not a nixpkgs attribute path",
                        hint="write it as go or python3Packages.requests",
                    )
                )
                continue
            packages.setdefault(str(entry), Package(attribute=tuple(entry.split(".")), origin=Origin("", entry.at)))
        return tuple(packages.values())
