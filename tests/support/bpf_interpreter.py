"""An interpreter of the classic BPF that seccomp(2) runs, which shares nothing with the compiler: net/core/filter.c and kernel/seccomp.c.

It is as strict as the kernel's checks (bpf_check_classic, seccomp_check_filter): a program that would not load is not run either.
"""

from __future__ import annotations

import struct

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
    padded = (*arguments, *(0,) * (6 - len(arguments)))
    data = DATA.pack(number & 0xFFFFFFFF, arch, pointer, *(argument & (1 << 64) - 1 for argument in padded))
    accumulator = index = place = 0
    memory = [0] * 16
    while True:
        code, true, false, value = program[place]
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
                return value
            case 0x16:
                return accumulator
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
