"""A certificate authority for servers and clients of one test."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Authority:
    """Signs certificates, in a folder of its own."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "authority.pem"

    def create(self) -> Authority:
        self._openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority"
            " -addext keyUsage=critical,keyCertSign,cRLSign -keyout authority.key -out authority.pem"
        )
        return self

    def sign(self, alternative: str) -> tuple[Path, Path]:
        """A certificate for `alternative` (of openssl's subjectAltName) and its key."""
        # Python 3.13 verifies strictly: who signed must be said, and that it may sign.
        (self.folder / "extensions").write_text(
            f"subjectAltName={alternative}\nauthorityKeyIdentifier=keyid\n"
        )
        self._openssl(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=signed"
            " -keyout signed.key -out signed.csr"
        )
        self._openssl(
            "x509 -req -in signed.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 2"
            " -extfile extensions -out signed.pem"
        )
        name = alternative.replace(":", "-")
        return (
            (self.folder / "signed.pem").rename(self.folder / f"{name}.pem"),
            (self.folder / "signed.key").rename(self.folder / f"{name}.key"),
        )

    def _openssl(self, arguments: str) -> None:
        subprocess.run(["openssl", *arguments.split()], cwd=self.folder, check=True, capture_output=True)
