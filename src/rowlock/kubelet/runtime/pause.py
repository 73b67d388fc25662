"""The image of a sandbox: one program of a few bytes that sleeps until it is killed. Made here, so nothing is pulled."""

import io
import struct
import tarfile

_LOAD_ADDRESS = 0x400000
_HEADER_BYTES = 64 + 56
_MACHINE_CODE: dict[str, tuple[int, bytes]] = {
    # again: eax = 34 (pause); syscall; jump again
    "amd64": (62, bytes.fromhex("b822000000 0f05 ebf7")),
    # again: x0..x3 = 0; x8 = 73 (ppoll: of nothing, without end); svc; branch again
    "arm64": (183, struct.pack("<7I", *(0xD2800000 + n for n in range(4)), 0xD2800928, 0xD4000001, 0x17FFFFFA)),
}
"""Architecture, as engines spell it → ELF machine and instructions."""


def program(arch: str) -> bytes:
    """A static ELF executable. Raises ValueError for an unsupported architecture."""
    if arch not in _MACHINE_CODE:
        raise ValueError(
            f"pods with several containers are not supported yet on {arch}, only on {', '.join(_MACHINE_CODE)}"
        )
    machine, code = _MACHINE_CODE[arch]
    size = _HEADER_BYTES + len(code)
    ident = b"\x7fELF" + bytes((2, 1, 1)) + bytes(9)
    head = struct.pack(
        "<16sHHIQQQIHHHHHH", ident, 2, machine, 1, _LOAD_ADDRESS + _HEADER_BYTES, 64, 0, 0, 64, 56, 1, 0, 0, 0
    )
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _LOAD_ADDRESS, _LOAD_ADDRESS, size, size, 0x1000)
    return head + segment + code


def archive(arch: str) -> bytes:
    """The image's file system as a tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo("pause")
        entry.size, entry.mode = len(program(arch)), 0o755
        tar.addfile(entry, io.BytesIO(program(arch)))
    return buffer.getvalue()
