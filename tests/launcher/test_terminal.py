"""People work in a shell: their terminal, by tmux, with job control, signals and its size; and what must not get out by it."""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fence import PYTHON, Fence, name_of, users

pytestmark = [pytest.mark.needs("bwrap", "tmux", "user")]

MANIFEST = "metadata: {name: fence}\nruntime: {sandbox: {shells: {quiet: {network: none}}, default_allowed_domains: [example.org]}}\n"
SHELLS = ["default", "restricted", "quiet"]
PATIENCE = 60.0


class Terminal:
    """A tmux server of the test's own, in which an interactive bash of the host stands in the project."""

    def __init__(self, fence: Fence) -> None:
        self.fence = fence
        self._socket = fence.base / f"tmux-{time.monotonic_ns()}"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "90", "-y", "40", "env PS1='host> ' bash --norc --noprofile -i")
        self.see("host> ")

    def tmux(self, *words: str) -> str:
        """Run tmux as the fence's user."""
        command = ["tmux", "-S", str(self._socket), *words]
        if self.fence.uid != os.getuid():
            command = ["setpriv", f"--reuid={self.fence.uid}", f"--regid={self.fence.uid}", "--clear-groups", "--", *command]
        done = subprocess.run(
            command, cwd=self.fence.project, env=self.fence.environment(USER="somebody"), capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def type(self, line: str) -> None:
        """A line and Enter."""
        self.tmux("send-keys", "-l", line)
        self.tmux("send-keys", "Enter")

    def key(self, key: str) -> None:
        """C-c and the like."""
        self.tmux("send-keys", key)

    def screen(self) -> str:
        """What is on it, with what has scrolled away; a line that was too long is one line."""
        return self.tmux("capture-pane", "-p", "-J", "-S", "-500")

    def see(self, text: str, times: int = 1) -> str:
        """Wait for a text."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            shown = self.screen()
            if shown.count(text) >= times:
                return shown
            time.sleep(0.05)
        raise AssertionError(f"{text!r} was not seen {times} times:\n{self.screen()}")

    def close(self) -> None:
        self.tmux("kill-server")


@pytest.fixture(scope="module", params=users(), ids=name_of)
def fence(request: pytest.FixtureRequest) -> Iterator[Fence]:
    made = Fence.create(MANIFEST, uid=request.param)
    yield made
    made.remove()


@pytest.fixture
def terminal(fence: Fence) -> Iterator[Terminal]:
    made = Terminal(fence)
    yield made
    made.close()


def entered(terminal: Terminal, shell: str) -> None:
    """An interactive bash inside."""
    terminal.type(f".wavegen/bin/{shell}")
    terminal.see(f"({shell})")


@pytest.mark.parametrize("shell", SHELLS)
def test_an_interactive_shell_has_job_control_and_survives_ctrl_c(terminal: Terminal, shell: str) -> None:
    entered(terminal, shell)
    terminal.type("sleep 1000; echo ended-$?")
    time.sleep(0.3)
    terminal.key("C-c")
    terminal.type("echo alive-$((40+2))")
    terminal.see("alive-42")
    terminal.type("sleep 1000")
    time.sleep(0.3)
    terminal.key("C-z")
    terminal.see("Stopped")
    terminal.type("jobs | wc -l; bg; kill %1; wait; echo over-$((6*7))")
    shown = terminal.see("over-42")
    assert "no job control" not in shown
    assert "cannot set terminal" not in shown
    terminal.type("exit 7")
    terminal.type("echo status-$?")
    terminal.see("status-7")


@pytest.mark.parametrize("shell", SHELLS)
def test_ctrl_c_reaches_a_command_once_and_is_its_own_business(terminal: Terminal, shell: str) -> None:
    terminal.type(f'.wavegen/bin/{shell} bash -c \'trap "echo got-it" INT; echo re""ady; for i in 1 2 3 4 5 6 7 8; do sleep 0.3; done; echo done-$((1+1))\'')
    terminal.see("ready")
    terminal.key("C-c")
    shown = terminal.see("done-2")
    assert shown.count("got-it\n") == 1
    terminal.type("echo status-$?")
    terminal.see("status-0")


@pytest.mark.parametrize("shell", SHELLS)
def test_ctrl_c_ends_a_command_that_does_nothing_about_it(terminal: Terminal, shell: str) -> None:
    terminal.type(f".wavegen/bin/{shell} sh -c 'echo re\"\"ady; exec sleep 1000'")
    terminal.see("ready")
    terminal.key("C-c")
    terminal.type("echo status-$?")
    terminal.see("status-130")
    terminal.type(f".wavegen/bin/{shell} sh -c 'echo re\"\"ady-again; exec sleep 1000'")
    terminal.see("ready-again")
    terminal.key("C-\\")
    terminal.type("echo status-$?")
    terminal.see("status-131")


@pytest.mark.parametrize("shell", SHELLS)
def test_ctrl_c_ends_a_loop_around_a_shell_where_it_ended_the_command(terminal: Terminal, shell: str) -> None:
    terminal.type(f"for i in 1 2 3; do .wavegen/bin/{shell} sh -c 'echo re\"\"ady; exec sleep 1000'; echo went on-$((i+0)); done; echo over-$((1+1))")
    terminal.see("ready")
    terminal.key("C-c")
    terminal.type("echo status-$?")
    shown = terminal.see("status-130")
    assert "went on-1" not in shown
    # A command that is not ended by it decides for itself, and the loop goes on.
    terminal.type(f'for i in 1 2; do .wavegen/bin/{shell} sh -c \'trap "exit 130" USR1; trap "" INT; echo go""es; sleep 0.5\'; echo next-$((i+1)); done')
    terminal.see("goes")
    terminal.key("C-c")
    terminal.see("next-3")


@pytest.mark.needs("landlock")
@pytest.mark.parametrize("uid", users(), ids=name_of)
def test_ctrl_c_ends_a_loop_around_a_shell_of_landlock(uid: int) -> None:
    fence = Fence.create("metadata: {name: fence}\nruntime: {sandbox: {backend: landlock}}\n", uid=uid)
    terminal = Terminal(fence)
    try:
        terminal.type(
            "for i in 1 2 3; do .wavegen/bin/landlock-default sh -c 'echo re\"\"ady; exec sleep 1000'; echo went on-$((i+0)); done; echo over-$((1+1))"
        )
        terminal.see("ready")
        terminal.key("C-c")
        terminal.type("echo status-$?")
        assert "went on-1" not in terminal.see("status-130")
    finally:
        terminal.close()
        fence.remove()


@pytest.mark.parametrize("shell", SHELLS)
def test_ctrl_z_stops_a_command_and_fg_goes_on(terminal: Terminal, shell: str) -> None:
    terminal.type(f".wavegen/bin/{shell} bash -c 'echo re\"\"ady; read line; echo read-$line'")
    terminal.see("ready")
    terminal.key("C-z")
    terminal.see("Stopped")
    terminal.type("echo host-$((1+2))")
    terminal.see("host-3")
    terminal.type("fg")
    # Typed before bash leaves its own line editing, the line's end would not be one to the command.
    terminal.see(f".wavegen/bin/{shell} bash -c", times=3)
    terminal.type("this")
    terminal.see("read-this")
    terminal.type("echo status-$?")
    terminal.see("status-0")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_size_of_the_terminal_arrives_and_follows(terminal: Terminal, shell: str) -> None:
    entered(terminal, shell)
    terminal.type("stty size")
    terminal.see("40 90")
    terminal.type("trap 'echo resized-$((1+1))' WINCH; echo trapped-$((1+1))")
    terminal.see("trapped-2")
    terminal.tmux("resize-window", "-x", "70", "-y", "30")
    terminal.type("stty size")
    terminal.see("30 70")
    # bash obeys a trap when it has a command to run.
    terminal.type("true")
    terminal.see("resized-2")


INJECT = f"""{PYTHON} -I -S -c '
import ctypes, fcntl
libc = ctypes.CDLL(None, use_errno=True)
for request in (0x5412, 0x541C, 0x100005412, 0xFFFFFFFF00005412, 0x10000541C):
    for letter in b"echo injected\\n":
        done = libc.syscall(ctypes.c_long(16), 0, ctypes.c_ulong(request), ctypes.byref(ctypes.c_char(letter)))
        if done == 0: print("IN" + "JECTED")
print("tried-" + str(1 + 1))
'"""


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("interactive", [True, False])
def test_nothing_is_typed_into_the_terminal(terminal: Terminal, shell: str, *, interactive: bool) -> None:
    script = terminal.fence.write("inject.sh", INJECT)
    os.chown(script, terminal.fence.uid, -1)
    if interactive:
        entered(terminal, shell)
        terminal.type("sh inject.sh")
        terminal.see("tried-2")
        terminal.type("exit")
    else:
        terminal.type(f".wavegen/bin/{shell} sh inject.sh")
    terminal.see("tried-2")
    terminal.type("echo last-$((1+1))")
    shown = terminal.see("last-2")
    assert "INJECTED" not in shown
    assert "injected" not in shown.replace("inject.sh", "")


def test_without_a_fence_it_is_typed() -> None:
    """The control: the kernel lets it through, at least for root."""
    if os.getuid() or Path("/proc/sys/dev/tty/legacy_tiocsti").read_text("ascii").strip() not in ("0", "1"):
        pytest.skip("only root may type into any terminal")
    made = Fence.create(MANIFEST, uid=0)
    terminal = Terminal(made)
    try:
        made.write("inject.sh", INJECT)
        terminal.type("sh inject.sh")
        terminal.see("INJECTED")
    finally:
        terminal.close()
        made.remove()


def named(uid: int) -> bool:
    """Whether the user is in /etc/passwd."""
    try:
        return bool(pwd.getpwuid(uid))
    except KeyError:
        return False


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("program", ["bash", pytest.param("zsh", marks=pytest.mark.needs("zsh")), pytest.param("fish", marks=pytest.mark.needs("fish"))])
def test_shells_start_clean(terminal: Terminal, shell: str, program: str) -> None:
    terminal.type(f".wavegen/bin/{shell} {program} -i")
    time.sleep(0.5)
    sum_ = "(math 40 + 2)" if program == "fish" else "$((40+2))"
    terminal.type(f"echo sum-{sum_}")
    terminal.see("sum-42")
    terminal.type("sleep 1000")
    time.sleep(0.4)
    terminal.key("C-c")
    terminal.type(f"echo again-{sum_}")
    shown = terminal.see("again-42")
    words = ("error", "warning", "cannot", "denied", "not permitted", "no job control", "newuser", "read-only", "Read-only")
    # fish asks /etc/passwd for the user's name, which a number alone has not, outside as inside.
    known = ("Runtime path", "/tmp/fish.") if terminal.fence.uid and not named(terminal.fence.uid) else ()
    noise = [line for line in shown.splitlines() if any(word in line for word in words) and not any(word in line for word in known)]
    assert not noise
    terminal.type("exit")
    terminal.type("echo back-$((1+1))")
    terminal.see("back-2")


@pytest.mark.parametrize("shell", SHELLS)
def test_what_shares_the_terminal_is_not_signalled(terminal: Terminal, shell: str) -> None:
    """The wrapper is in the process group that kill(0) reaches, and so may be whoever started it from a script."""
    terminal.type(
        f'sh -c \'sleep 1000 & .wavegen/bin/{shell} sh -c "trap : TERM; kill -TERM 0; echo sent-\\$?"; kill -0 $! && echo neigh""bour-lives; kill $!\''
    )
    shown = terminal.see("neighbour-lives")
    assert "sent-" in shown
