"""An interpreter of the classic BPF that seccomp(2) runs, which shares nothing with the compiler: net/core/filter.c and kernel/seccomp.c.

It is as strict as the kernel's checks (bpf_check_classic, seccomp_check_filter): a program that would not load is not run either.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

KNOWN = {
    0x20, 0x80, 0x00, 0x01, 0x02, 0x03, 0x60, 0x61, 0x06, 0x16, 0x07, 0x87,
    0x04, 0x0C, 0x14, 0x1C, 0x54, 0x5C, 0x44, 0x4C, 0x64, 0x6C, 0x74, 0x7C,
    0x05, 0x15, 0x1D, 0x25, 0x2D, 0x35, 0x3D, 0x45, 0x4D,
}  # fmt: skip
DATA = struct.Struct("<IIQ6Q")


def instructions(blob: bytes) -> list[tuple[int, int, int, int]]:
    """struct sock_filter[], checked as the kernel checks it."""
    assert blob
    assert len(blob) % 8 == 0
    found = list(struct.iter_unpack("<HBBI", blob))
    assert len(found) <= 4096
    for place, (code, true, false, value) in enumerate(found):
        assert code in KNOWN, hex(code)
        if code == 0x20:
            assert value % 4 == 0
            assert value < DATA.size
        if code == 0x05:
            assert place + value + 1 < len(found)
        elif code & 7 == 5:
            assert place + max(true, false) + 1 < len(found)
    assert found[-1][0] in (0x06, 0x16)
    return found


def run(program: list[tuple[int, int, int, int]], arch: int, number: int, arguments: tuple[int, ...] = (), *, pointer: int = 0) -> int:
    """The program's answer to a call."""
    return run_each(program, arch, number, (arguments,), pointer=pointer)[0]


def run_each(program: list[tuple[int, int, int, int]], arch: int, number: int, many: Sequence[tuple[int, ...]], *, pointer: int = 0) -> list[int]:
    """Its answers to a call with each of these arguments. Up to where it looks at an argument it is run once."""
    state = (0, 0, 0, (0,) * 16)
    answer, state = _run(program, _data(arch, number, (), pointer), state, stop=True)
    if answer is not None:
        return [answer] * len(many)
    found = [_run(program, _data(arch, number, arguments, pointer), state, stop=False)[0] for arguments in many]
    return [answer for answer in found if answer is not None]


def _data(arch: int, number: int, arguments: tuple[int, ...], pointer: int) -> bytes:
    """struct seccomp_data."""
    padded = (*arguments, *(0,) * (6 - len(arguments)))
    return DATA.pack(number & 0xFFFFFFFF, arch, pointer, *(argument & (1 << 64) - 1 for argument in padded))


_State = tuple[int, int, int, tuple[int, ...]]
"""Place, accumulator, index, memory."""


def _run(program: list[tuple[int, int, int, int]], data: bytes, state: _State, *, stop: bool) -> tuple[int | None, _State]:
    """The answer, or with `stop` none where it looks at more than number and architecture, and the state before it does."""
    place, accumulator, index, memory = *state[:3], list(state[3])
    while True:
        code, true, false, value = program[place]
        if stop and code == 0x20 and value >= 8:
            return None, (place, accumulator, index, tuple(memory))
        place += 1
        operand = index if code & 8 else value
        match code:
            case 0x20:
                accumulator = int.from_bytes(data[value : value + 4], "little")
            case 0x00:
                accumulator = value
            case 0x01:
                index = value
            case 0x60:
                accumulator = memory[value]
            case 0x61:
                index = memory[value]
            case 0x02:
                memory[value] = accumulator
            case 0x03:
                memory[value] = index
            case 0x07:
                index = accumulator
            case 0x87:
                accumulator = index
            case 0x06:
                return value, state
            case 0x16:
                return accumulator, state
            case 0x54 | 0x5C:
                accumulator &= operand
            case 0x44 | 0x4C:
                accumulator |= operand
            case 0x04 | 0x0C:
                accumulator = accumulator + operand & 0xFFFFFFFF
            case 0x14 | 0x1C:
                accumulator = accumulator - operand & 0xFFFFFFFF
            case 0x64 | 0x6C:
                accumulator = accumulator << operand & 0xFFFFFFFF
            case 0x74 | 0x7C:
                accumulator >>= operand
            case 0x05:
                place += value
            case 0x15 | 0x1D:
                place += true if accumulator == operand else false
            case 0x25 | 0x2D:
                place += true if accumulator > operand else false
            case 0x35 | 0x3D:
                place += true if accumulator >= operand else false
            case 0x45 | 0x4D:
                place += true if accumulator & operand else false
            case _:
                raise AssertionError(hex(code))
