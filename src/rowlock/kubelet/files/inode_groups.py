"""Lets ext4 spread the inodes of many unrelated directories.

ext4 without a journal (common in sandboxes and small virtual machines) does not reuse an inode for one to six minutes after
it was freed, and scans each such inode of a block group whenever it creates a file there: after a thousand pods were removed, a
new one took 4 ms longer, and with this hint 54 one-pod jobs a second became 75. With a journal there is no such scan, and
neighbouring directories are written together: there the hint would cost more than it gains. Standard library only.
"""

import contextlib
import fcntl
import os
import struct

_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
"""FS_IOC_GETFLAGS and FS_IOC_SETFLAGS of linux/fs.h, on machines with 64 bits."""
TOP_DIRECTORY = 0x00020000
"""FS_TOPDIR_FL, the T of chattr(1): the directories in it are unrelated."""
_LONG = struct.Struct("l")


def spread_subdirectories(directory: str) -> None:
    """Asks the file system to put new directories in `directory` into block groups of their own, where that makes creating files
    faster. It is only a hint: errors are ignored."""
    with contextlib.suppress(OSError):
        if not lacks_journal(os.stat(directory).st_dev):
            return
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            flags = read_flags(fd)
            if not flags & TOP_DIRECTORY:
                fcntl.ioctl(fd, _SET_FLAGS, _LONG.pack(flags | TOP_DIRECTORY))
        finally:
            os.close(fd)


def read_flags(fd: int) -> int:
    """The attributes of an open file. Raises OSError where the file system has none."""
    return int(_LONG.unpack(fcntl.ioctl(fd, _GET_FLAGS, _LONG.pack(0)))[0])


def lacks_journal(device: int, root: str = "/") -> bool:
    """Whether the file system on a device (`st_dev`) is ext4 without a journal. `root`: where `proc` and `sys` are. Raises OSError
    where there is no such block device: tmpfs, a network's file system, another operating system."""
    name = os.path.basename(os.readlink(f"{root}sys/dev/block/{os.major(device)}:{os.minor(device)}"))
    if not os.path.isdir(f"{root}proc/fs/ext4/{name}"):
        return False
    journals = os.listdir(f"{root}proc/fs/jbd2") if os.path.isdir(f"{root}proc/fs/jbd2") else []
    return not any(journal.rpartition("-")[0] == name for journal in journals)
