"""Finding an application's handlers by the ``module:attribute`` that an operator gives to the worker."""

from __future__ import annotations

import importlib
import sys
import traceback
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType

from jobcontract.errors import ConfigError
from jobcontract.handlers import Handlers


def load_handlers(target: str) -> Handlers:
    """The `Handlers` that `target` names, such as ``myapp.jobs:handlers``. Imports the module, which runs it.

    The working directory is importable, as with ``python -m``. Raises `ConfigError`, which tells whether the
    text, the module, its own imports or the attribute is at fault.
    """
    module_name, colon, attribute = target.partition(":")
    if not (colon and module_name and attribute):
        raise ConfigError(
            f"{target!r} does not name handlers; write MODULE:ATTRIBUTE, such as myapp.jobs:handlers"
        )
    module = _import(module_name)
    found: object = module
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise ConfigError(
                f"{module_name} has no {attribute!r}; {_suggestion(module, attribute)}"
            ) from None
    if not isinstance(found, Handlers):
        raise ConfigError(
            f"{target} is a {type(found).__name__}, not a jobcontract.Handlers; "
            f"{_suggestion(module, attribute)}"
        )
    if not len(found):
        raise ConfigError(f"{target} has no handlers; register at least one with @{attribute}.handler(...)")
    return found


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise ConfigError(
                f"there is no module {error.name!r} in {here} or on the Python path; run the worker in the "
                "application's directory, or install the application"
            ) from None
        raise _broken(name, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _broken(name: str, error: BaseException) -> ConfigError:
    # The last frame outside of the import machinery is the line to look at.
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename
    ]
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if len(frames) > 1 else ""
    return ConfigError(f"importing {name} failed: {type(error).__name__}: {error}{where}")


def _suggestion(module: ModuleType, attribute: str) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Handlers)]
    near = get_close_matches(attribute, names, n=1, cutoff=0) or names[:1]
    if not near:
        return f"nothing in {module.__name__} is a jobcontract.Handlers"
    return f"did you mean {module.__name__}:{near[0]}?"
