"""Disks that fill up or lose power, for the data of private servers. They take the right to mount.

What is lost at a loss of power is what was written and not synced. The file system lies in an image on a loop
device: its page cache is the memory that the power takes away, and the image is the disk. The image is copied
while the server stands still, and the copy is mounted in its place.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self


class NotPossible(Exception):
    """This machine doesn't let us: the message says what, and why."""


class Disk:
    """A file system of its own at `path`, unmounted at the end."""

    def __init__(self) -> None:
        self._parent = Path(tempfile.mkdtemp(prefix="jobcontract-disk-"))
        self._parent.chmod(0o755)  # the account that a server runs as comes through here
        self.path = self._parent / "disk"
        self.path.mkdir()

    def close(self) -> None:
        """Unmount it, whoever still uses it, and remove it."""
        subprocess.run(["umount", "--lazy", str(self.path)], capture_output=True, check=False)
        shutil.rmtree(self._parent, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, *argv: str) -> None:
        try:
            subprocess.run(argv, check=True, capture_output=True, text=True)
        except FileNotFoundError:
            self.close()
            raise NotPossible(f"{argv[0]} is not installed") from None
        except subprocess.CalledProcessError as error:
            self.close()
            raise NotPossible(f"{argv[0]} is not allowed here: {error.stderr.strip()}") from None


class SmallDisk(Disk):
    """A tmpfs of so many bytes."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._run("mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", str(self.path))
        self._filler = self.path / "filler"

    def fill(self) -> None:
        """Leave not a byte."""
        with self._filler.open("ab", buffering=0) as file:
            size = 1 << 20
            while size:
                try:
                    file.write(b"\0" * size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size //= 2

    def free(self) -> None:
        """The end of `fill`."""
        self._filler.unlink(missing_ok=True)


class PowerDisk(Disk):
    """An ext4 in an image in memory, so that copying it takes a moment."""

    def __init__(self, size: int) -> None:
        super().__init__()
        folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._images = Path(tempfile.mkdtemp(prefix="jobcontract-image-", dir=folder))
        self._number = 0
        with self._image.open("wb") as image:
            image.truncate(size)
        self._run("mkfs.ext4", "-q", "-F", str(self._image))
        self._mount()

    @property
    def _image(self) -> Path:
        return self._images / f"{self._number}.img"

    def _mount(self) -> None:
        # The journal is committed by those who sync, and not every five seconds by itself as well.
        self._run("mount", "-o", "loop,commit=300,noatime", str(self._image), str(self.path))

    def sync(self) -> None:
        """What was written so far is there for good."""
        self._run("sync", "--file-system", str(self.path))

    def keep_what_was_synced(self) -> None:
        """What is in the page cache now will be gone. Whoever writes must stand still."""
        before, self._number = self._image, self._number + 1
        shutil.copyfile(before, self._image)

    def come_back(self) -> None:
        """Mount what was kept. Whoever used the disk must have ended."""
        deadline = time.monotonic() + 20
        while subprocess.run(["umount", str(self.path)], capture_output=True, check=False).returncode:
            if time.monotonic() > deadline:
                raise NotPossible(f"somebody holds {self.path}")
            time.sleep(0.1)
        (self._images / f"{self._number - 1}.img").unlink()
        self._mount()

    def close(self) -> None:
        super().close()
        with contextlib.suppress(AttributeError):
            shutil.rmtree(self._images, ignore_errors=True)
