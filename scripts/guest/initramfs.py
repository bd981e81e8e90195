#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Write initramfs archives (cpio, "newc" format) without being root.

usage: initramfs.py FOLDER ARCHIVE

packs the contents of FOLDER. As a module it is what run-vm.py builds a guest's
root file system with. Everything in an archive belongs to root; file modes are
kept. The kernel accepts several archives one behind the other, where a later
file replaces an earlier one of the same name, so big parts are packed once and
appended. Format: Documentation/driver-api/early-userspace/buffer-format.rst in
the kernel source.
"""

import os
import shutil
import stat
import sys

# The kernel looks for the next archive at a multiple of four bytes.
ALIGNMENT = 4


class Archive:
    """An initramfs archive being written to the binary file `out`.

    Guest paths are absolute. Folders on the way to a path are made when they
    have not been added before.
    """

    def __init__(self, out):
        self._out = out
        self._inode = 0
        self._folders = {"/"}

    def folder(self, path, mode=0o755):
        """Add the folder `path`."""
        path = os.path.normpath(path)
        if path in self._folders:
            return
        self._parents(path)
        self._folders.add(path)
        self._header(path, stat.S_IFDIR | mode)

    def text(self, path, text, mode=0o644):
        """Add a file that holds `text`."""
        data = os.fsencode(text)
        self._parents(path)
        self._header(path, stat.S_IFREG | mode, size=len(data))
        self._out.write(data)
        self._pad()

    def file(self, path, source, mode=None):
        """Add a copy of the host's file `source`, with its mode if None."""
        with open(source, "rb") as data:
            info = os.fstat(data.fileno())
            mode = stat.S_IMODE(info.st_mode) if mode is None else mode
            self._parents(path)
            self._header(path, stat.S_IFREG | mode, size=info.st_size)
            start = self._out.tell()
            shutil.copyfileobj(data, self._out, 1 << 20)
            if self._out.tell() - start != info.st_size:
                raise OSError(f"{source} changed while it was read")
        self._pad()

    def symlink(self, path, target):
        """Add a symbolic link to `target`."""
        data = os.fsencode(target)
        self._parents(path)
        self._header(path, stat.S_IFLNK | 0o777, size=len(data))
        self._out.write(data)
        self._pad()

    def device(self, path, major, minor, mode=0o600):
        """Add a character device."""
        self._parents(path)
        self._header(path, stat.S_IFCHR | mode, device=(major, minor))

    def tree(self, source):
        """Add what the host's folder `source` holds, as seen from the root."""
        for here, folders, files in os.walk(source):
            base = os.path.join("/", os.path.relpath(here, source))
            for name in sorted(folders + files):
                self._entry(os.path.join(base, name), os.path.join(here, name))

    def append(self, source):
        """Put the archive `source` behind what has been written so far."""
        self.close()
        with open(source, "rb") as data:
            shutil.copyfileobj(data, self._out, 1 << 20)
        self._pad()
        self._folders = {"/"}

    def close(self):
        """End the archive; what comes after it starts a new one."""
        self._header("/TRAILER!!!", 0)

    def _entry(self, path, source):
        info = os.lstat(source)
        if stat.S_ISLNK(info.st_mode):
            self.symlink(path, os.readlink(source))
        elif stat.S_ISDIR(info.st_mode):
            self.folder(path, stat.S_IMODE(info.st_mode))
        elif stat.S_ISREG(info.st_mode):
            self.file(path, source)
        # Sockets, pipes and devices have no meaning in the guest.

    def _parents(self, path):
        parent = os.path.dirname(path)
        if parent not in self._folders:
            self.folder(parent)

    def _header(self, path, mode, size=0, device=(0, 0)):
        # The kernel ties files of the same inode together as hard links only
        # when their link count is above one, which is never said here.
        self._inode += 1
        name = os.fsencode(path.lstrip("/")) + b"\0"
        links = 2 if stat.S_ISDIR(mode) else 1
        fields = (self._inode, mode, 0, 0, links, 0, size, 0, 0, *device, len(name), 0)
        header = b"070701" + b"".join(b"%08X" % field for field in fields)
        self._out.write(header + name)
        self._pad()

    def _pad(self):
        self._out.write(b"\0" * (-self._out.tell() % ALIGNMENT))


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: initramfs.py FOLDER ARCHIVE")
    with open(sys.argv[2], "wb") as out:
        archive = Archive(out)
        archive.tree(sys.argv[1])
        archive.close()


if __name__ == "__main__":
    main()
