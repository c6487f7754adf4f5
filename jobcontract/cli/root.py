"""`jobctl` itself: the commands put together, and the place where a failure becomes a sentence and a code."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, TextIO, cast

import click

from jobcontract.cli import (
    backends,
    bench,
    config,
    dead,
    doctor,
    init,
    jobs,
    metrics,
    plugins,
    prune,
    queues,
    register,
    schedule,
    stats,
    worker,
)
from jobcontract.cli.command import Group, format_options, shared_options, write_lines
from jobcontract.cli.escape import escape, one_line
from jobcontract.cli.exits import MEANINGS, CommandFailed, Exit, code_of, sentence_of
from jobcontract.cli.session import Session, pass_session
from jobcontract.errors import JobContractError


class Root(Group):
    """The group of all commands, those of other packages included."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:  # Any: click's own signature
        super().__init__(*arguments, **keywords)
        self.params.extend(shared_options())
        self._loaded: dict[str, click.Command] = {}

    def main(  # pyright: ignore[reportIncompatibleMethodOverride]  # click's overloads are about its own exit
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run and exit. With `standalone_mode` False it is click's: it returns or raises."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        _prepare_streams()
        self._main_shell_completion(extra, prog_name or "jobctl", complete_var)
        arguments = list(sys.argv[1:] if args is None else args)
        session = Session(arguments=tuple(arguments))
        code = self._run(arguments, prog_name, session, extra)
        sys.exit(code if _flush_stdout() else code or Exit.FAILED)

    def _run(self, args: list[str], prog_name: str | None, session: Session, extra: dict[str, Any]) -> int:
        try:
            with self.make_context(prog_name or "jobctl", args, obj=session, **extra) as context:
                self.invoke(context)
            return Exit.OK
        except click.exceptions.Exit as end:
            return end.exit_code
        except (KeyboardInterrupt, click.Abort):
            click.echo(err=True)  # behind the terminal's ^C
            return Exit.INTERRUPTED
        except BrokenPipeError:
            return Exit.CLOSED_PIPE
        except click.ClickException as error:
            _report(error.format_message())
            if isinstance(error, click.UsageError) and error.ctx is not None:
                click.echo(f"Try '{error.ctx.command_path} --help' for help.", err=True)
            return error.exit_code
        except Exception as error:
            if session.verbosity and (error.__cause__ or not isinstance(error, CommandFailed)):
                trace = "".join(traceback.format_exception(error))
                click.echo(escape(session.redact(trace), keep="\n\t"), err=True, nl=False)
            sentence = sentence_of(error)
            _report(
                sentence if isinstance(error, (JobContractError, CommandFailed)) else session.redact(sentence)
            )
            return code_of(error)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Our own in the order in which one meets them, then those of other packages."""
        del ctx
        return [*self.commands, *sorted(plugins.installed().keys() - self.commands.keys())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command; loads the package that brings it. Our own names can't be taken over."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        if cmd_name not in self._loaded:
            point = plugins.installed().get(cmd_name)
            if point is None:
                return None
            self._loaded[cmd_name] = plugins.load(point)
        return self._loaded[cmd_name]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options of every command, and the commands."""
        format_options(self, ctx, formatter, "Options, before or after the command's name")
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click's; what can't be loaded is said on standard error."""
        super().format_commands(ctx, formatter)
        for command in self._loaded.values():
            if isinstance(command, plugins.BrokenCommand):
                click.echo(f"Warning: {command.reason}", err=True)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What the exit codes mean, and where to begin."""
        del ctx
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), meaning) for code, meaning in MEANINGS.items()])
        write_lines(formatter, "Examples", EXAMPLES)


EXAMPLES = (
    "jobctl init",
    "jobctl register send_mail --input-ref '{\"message_id\": 7}'",
    "jobctl stats",
)
"""In the help of `jobctl` itself: where to begin."""


def _report(sentence: str) -> None:
    if sentence:
        click.echo(f"Error: {one_line(sentence)}", err=True)


def _prepare_streams() -> None:
    if isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):
        # PYTHONUNBUFFERED, as in most containers: what a short write leaves over would be lost in silence.
        whole = io.BufferedWriter(cast(io.RawIOBase, sys.stdout.buffer))
        sys.stdout = io.TextIOWrapper(whole, encoding=sys.stdout.encoding, line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that knows Latin-1 only gets \u2026 for an ellipsis, not a UnicodeEncodeError.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _flush_stdout() -> bool:
    """Whether all was written. What was not is thrown away: the interpreter would try again at its end."""
    stdout = cast("TextIO | None", sys.stdout)
    if stdout is None:  # closed by the caller
        return True
    try:
        stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stdout.fileno())
        os.close(nowhere)
        return False
    return True


@click.group(cls=Root)
@click.version_option(package_name="jobcontract", message="jobctl %(version)s")
@pass_session
def jobctl(session: Session) -> None:
    """Look after jobs and the stores they are in.

    Which store, the configuration says (jobcontract.toml or JOBCONTRACT_* variables), or --backend. With
    nothing configured it is sqlite:///jobcontract.db.
    """
    session.log_to_stderr()  # for commands that are no `Command`; the others do it again, with their own -v


for _command in (
    init.init,
    register.register,
    worker.worker,
    stats.stats,
    jobs.jobs,
    dead.dead,
    queues.queues,
    schedule.schedule,
    prune.prune,
    doctor.doctor,
    bench.bench,
    metrics.metrics,
    backends.backends,
    config.config,
):
    jobctl.add_command(_command)
