"""`Command` and `Group`: what all commands of `jobctl` have in common.

Options that every command takes, before or after its name; examples as data, so that the help shows them,
the documentation repeats them and the tests run them; and a suggestion for a name that is nearly right.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from jobcontract.cli.exits import Exit
from jobcontract.cli.session import Session


class Command(click.Command):
    """A command that takes the shared options and shows `examples` in its help.

    `takes_backend` False is for a command that is not about one store: it refuses ``--backend``.
    """

    def __init__(
        self,
        *arguments: Any,  # Any: click's own signature passes through
        examples: Sequence[str] = (),
        takes_backend: bool = True,
        **keywords: Any,
    ) -> None:
        super().__init__(*arguments, **keywords)
        self.examples = tuple(examples)
        self.takes_backend = takes_backend
        self.params.extend(shared_options(takes_backend=takes_backend))

    def invoke(self, ctx: click.Context) -> Any:
        """As click's, once logging is set up."""
        session = ctx.ensure_object(Session)
        if session.backend_name is not None and not self.takes_backend:
            raise click.UsageError(f"{ctx.command_path} is not about one backend; drop --backend", ctx)
        session.log_to_stderr()
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The command's own options, then those that all share."""
        format_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples."""
        del ctx
        write_lines(formatter, "Examples", self.examples)


class Group(click.Group):
    """A noun with verbs below it, or `jobctl` itself."""

    command_class = Command
    group_class = type  # groups below this one are of its own class

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without a verb: the help, as an error."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(Exit.USAGE)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or name the nearest one."""
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            ctx.fail(f"There is no command {name!r}{self._nearest(ctx, name)}")
        return super().resolve_command(ctx, args)

    def _nearest(self, ctx: click.Context, name: str) -> str:
        names = self.list_commands(ctx)
        deeper = [f"{group} {name}" for group in names if _has_verb(self.commands.get(group), name)]
        near = deeper or get_close_matches(name, names, n=1, cutoff=0.5)
        return f"; did you mean {' or '.join(repr(each) for each in near)}?" if near else ""


def _has_verb(command: click.Command | None, name: str) -> bool:
    return isinstance(command, click.Group) and name in command.commands


def shared_options(*, takes_backend: bool = True) -> list[click.Option]:
    """Fresh ``--config``, ``--backend`` and ``-v``, which store into the `Session`, given anywhere."""
    options = [
        click.Option(
            ["--config"],
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            expose_value=False,
            callback=_keep_config,
            help="The configuration file; else JOBCONTRACT_CONFIG, or the nearest jobcontract.toml.",
        ),
        click.Option(
            ["--backend"],
            metavar="NAME_OR_URL",
            expose_value=False,
            callback=_keep_backend,
            help="The store: a configured name, or a URL; else JOBCONTRACT_DEFAULT, or the default. Other "
            "users of this machine can read a command line: a URL with a password belongs into the "
            "configuration, or into JOBCONTRACT_BACKENDS__NAME__URL.",
        ),
        click.Option(
            ["-v", "--verbose"],
            count=True,
            expose_value=False,
            callback=_keep_verbosity,
            help="Say more: log lines, and the traceback of an error. -vv says everything.",
        ),
    ]
    return options if takes_backend else [option for option in options if option.name != "backend"]


SHARED_OPTIONS = frozenset({"config", "backend", "verbose"})


def _keep_config(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> None:
    del parameter
    if value is not None:
        ctx.ensure_object(Session).config = value


def _keep_backend(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    del parameter
    if value is not None:
        ctx.ensure_object(Session).backend_name = value


def _keep_verbosity(ctx: click.Context, parameter: click.Parameter, value: int) -> None:
    del parameter
    ctx.ensure_object(Session).verbosity += value


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON (in ASCII), for programs.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def format_options(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter, shared: str = "Common options"
) -> None:
    """Write the options of `command` in two sections: its own, and those that all commands share."""
    own: list[tuple[str, str]] = []
    common: list[tuple[str, str]] = []
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None and isinstance(parameter, click.Option):
            shared_one = parameter.name in SHARED_OPTIONS or "--help" in parameter.opts
            (common if shared_one else own).append(record)
    for title, records in (("Options", own), (shared, common)):
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


def write_lines(formatter: click.HelpFormatter, title: str, lines: Sequence[str]) -> None:
    """A section of lines that are never wrapped, for they are to be copied."""
    if lines:
        with formatter.section(title):
            for line in lines:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
