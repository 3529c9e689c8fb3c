#!/usr/bin/env python3
"""hide_symbols.py LIBRARY NAME...: marks dynamic symbols of a linked library as hidden (STV_HIDDEN), in place.

Why: hooks/other_libc.S. Exit code 1, and the library unchanged, when one of them is not there. Running it
again changes nothing.
"""

import struct
import sys

SHT_DYNSYM = 11
STV_HIDDEN = 2
SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym


def hide(data, names):
    """The names that are not defined among the dynamic symbols of the ELF file `data`, a bytearray."""
    if data[:6] != b"\x7fELF\x02\x01":
        sys.exit("not an ELF file of 64 bits, little-endian")
    offset, = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3a)
    sections = [SECTION.unpack_from(data, offset + index * size) for index in range(count)]
    missing = {name.encode() for name in names}
    for section in sections:
        if section[1] != SHT_DYNSYM:
            continue
        strings = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], SYMBOL.size):
            name_at, _, other, index, _, _ = SYMBOL.unpack_from(data, at)
            name = bytes(data[strings + name_at:data.index(b"\0", strings + name_at)])
            if name in missing and index != 0:
                data[at + 5] = other & ~3 | STV_HIDDEN
                missing.discard(name)
    return missing


def main():
    path, names = sys.argv[1], sys.argv[2:]
    with open(path, "r+b") as file:
        data = bytearray(file.read())
        missing = hide(data, names)
        if missing:
            sys.exit(f"{path}: no such symbols: {b', '.join(sorted(missing)).decode()}")
        file.seek(0)
        file.write(data)


if __name__ == "__main__":
    main()
