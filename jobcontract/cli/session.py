"""What a command gets: the settings, the store it was told to use, and how much it should say."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import click

from jobcontract.backend import Backend
from jobcontract.cli.escape import escape, without_url_passwords
from jobcontract.config import Settings, StoreSettings, load_settings
from jobcontract.errors import ConfigError
from jobcontract.registry import get_backend
from jobcontract.side_doors import Located
from jobcontract.url import StoreURL


@dataclass
class Session:
    """One run of `jobctl`. Commands ask for it with `pass_session`."""

    config: Path | None = None
    """``--config``."""
    backend_name: str | None = None
    """``--backend``: a name or a URL, as it was given."""
    verbosity: int = 0
    """How often ``-v`` was given."""
    arguments: tuple[str, ...] = ()
    """What stands behind ``jobctl`` on the command line, for a command that starts itself again."""
    _settings: Settings | None = None
    _passwords: set[str] = field(default_factory=set[str], repr=False)

    @property
    def settings(self) -> Settings:
        """The settings, read at the first use. Raises `ConfigError`."""
        if self._settings is None:
            self._settings = load_settings(self.config)
            for table in self._settings.backends.values():
                self._remember(table.url.get_secret_value())
        return self._settings

    def store(self, name: str | None = None) -> StoreSettings:
        """The settings of the store `name`, or of the one that this run is about. Raises `ConfigError`."""
        chosen = name or self.backend_name
        if chosen is not None and "://" in chosen:
            self._remember(chosen)
        return self.settings.store(chosen)

    def backend(self, name: str | None = None) -> Backend:
        """The backend `name`, or the one that this run is about; closed when the command ends.

        Contacts nothing yet. Raises `ConfigError`.
        """
        self.store(name)
        backend = get_backend(name or self.backend_name, settings=self.settings)
        context = click.get_current_context(silent=True)
        if context is not None:
            context.call_on_close(backend.close)
        return backend

    def describe(self, name: str | None = None) -> str:
        """The store, for people who are asked before something is destroyed in it. Contacts nothing."""
        driver = self.backend(name).driver
        return escape(driver.location if isinstance(driver, Located) else self.store(name).url.redacted())

    def redact(self, text: str) -> str:
        """`text` of a stranger (an error that nobody foresaw, a traceback) without the passwords of this run.

        What jobcontract says itself holds none. There, a password that is a word would only make holes.
        """
        text = without_url_passwords(text)
        for password in sorted(self._passwords, key=len, reverse=True):
            text = text.replace(password, "***")
        return text

    def log_to_stderr(self, usual: int = logging.WARNING) -> None:
        """Send log records of level `usual` and above to standard error, further ones with each ``-v``."""
        level = max(logging.DEBUG, usual - 10 * self.verbosity)
        logging.basicConfig(handlers=[_StderrHandler()], level=level, force=True)

    def _remember(self, url: str) -> None:
        try:
            password = StoreURL.parse(url).password
        except ConfigError:
            return
        if password is not None and password.get_secret_value():
            plain = password.get_secret_value()
            self._passwords |= {plain, quote(plain, safe="")}


pass_session = click.make_pass_decorator(Session, ensure=True)
"""Decorates a command that takes the `Session` as its first argument."""


class _StderrHandler(logging.Handler):
    """Log lines on whatever is standard error now, with the text of strangers escaped."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s[%(process)d]: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            click.echo(escape(without_url_passwords(self.format(record)), keep="\n\t"), err=True)
        except Exception:
            self.handleError(record)
