"""Settings: where they come from, which wins, and that a mistake in them is named and shows no secret."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from jobcontract.config import DEFAULT_URL, Settings, StoreOptions, StoreSettings, load_settings
from jobcontract.durations import PositiveDuration
from jobcontract.errors import ConfigError
from jobcontract.url import StoreURL

CANARY = "cAnArY"
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str, name: str = "jobcontract.toml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def load(path: Path | None = None, /, **environment: str) -> Settings:
    return load_settings(path, environment=environment)


# -- Where settings come from --------------------------------------------------------------------------------


def test_nothing_configured_is_sqlite_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = load().store()
    assert str(store.url) == DEFAULT_URL == "sqlite:///jobcontract.db"
    assert store.name == "default"


def test_a_file_names_stores_and_the_default(write: Write) -> None:
    path = write(
        'default = "main"\n[backends.main]\nurl = "postgresql://h/db"\npool = 4\n[backends.other]\nurl = "sqlite://"\n'
    )
    settings = load(path)
    assert (settings.store().name, settings.store().options) == ("main", {"pool": 4})
    assert str(settings.store("other").url) == "sqlite://"
    assert str(settings.store("redis://h/0").url) == "redis://h/0"
    assert settings.source == path


def test_a_byte_order_mark_of_an_editor_is_no_mistake(write: Write) -> None:
    assert load(write('\ufeffdefault = "main"\n[backends.main]\nurl = "sqlite://"')).store().name == "main"


def test_the_only_store_is_the_default(write: Write) -> None:
    assert load(write('[backends.main]\nurl = "sqlite://"')).store().name == "main"


def test_the_nearest_file_above_the_working_directory_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    (tmp_path / "jobcontract.toml").write_text('default = "far"')
    assert load().default == "far"
    (tmp_path / "a" / "pyproject.toml").write_text('[project]\nname = "without"')
    assert load().default == "far"
    (tmp_path / "a" / "pyproject.toml").write_text('[tool.jobcontract]\ndefault = "near"')
    assert load().default == "near"
    (tmp_path / "a" / "jobcontract.toml").write_text('default = "nearer"')
    assert load().default == "nearer"


def test_the_environment_names_the_file(write: Write) -> None:
    assert load(JOBCONTRACT_CONFIG=str(write('default = "named"'))).default == "named"


def test_a_working_directory_that_is_gone_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert load().source is None


def test_the_environment_wins_over_the_file_key_by_key(write: Write) -> None:
    path = write(
        '[backends.main]\nurl = "sqlite:///file.db"\npool = 4\n[worker]\nlease = "5s"\nconcurrency = 2\n'
    )
    settings = load(
        path,
        JOBCONTRACT_BACKENDS__MAIN__URL="sqlite:///environment.db",
        JOBCONTRACT_WORKER__CONCURRENCY="7",
        jobcontract_max_input_ref_bytes="1000",
        UNRELATED="x",
    )
    assert str(settings.store().url) == "sqlite:///environment.db"
    assert settings.store().options == {"pool": 4}
    assert (settings.worker.concurrency, settings.worker.lease) == (7, timedelta(seconds=5))
    assert settings.max_input_ref_bytes == 1000


def test_the_process_environment_is_read_by_default(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOBCONTRACT_DEFAULT", "from_environment")
    assert load_settings().default == "from_environment"
    assert load().default is None


# -- What is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('defualt = "a"', "'defualt' is not a setting; did you mean 'default'?"),
        ('xyzzy = "a"', "'xyzzy' is not a setting; known are: backends, control, default"),
        ('source = "a"', "'source' is not a setting"),
        ('_env_file = ".env"', "'_env_file' is not a setting"),
        ("_case_sensitive = true", "'_case_sensitive' is not a setting"),
        ('self = "a"', "'self' is not a setting"),
        ("default = 3", "'default': input should be a valid string"),
        ("backends = 3", "'backends': input should be a valid dictionary"),
        ('[backends]\nmain = "sqlite://"', "'backends.main': input should be a valid dictionary"),
        ("[backends.main]\npool = 4", "'backends.main.url' is required"),
        ('[backends."a b"]\nurl = "sqlite://"', "'backends.a b.[key]': string should match"),
        ("[worker]\nconcurency = 3", "'worker.concurency' is not a setting; did you mean 'concurrency'?"),
        ("[worker]\nconcurrency = 0", "'worker.concurrency': input should be greater than or equal to 1"),
        ('[worker]\nlease = "soon"', "'worker.lease': 'soon' is not a length of time"),
        ("[worker]\nlease = 0", "'worker.lease': must be longer than nothing"),
        ("max_input_ref_bytes = 99999999", "'max_input_ref_bytes': input should be less than or equal to"),
        ("default = 1\ndefault = 2", "is not valid TOML"),
        ("[backends.a]\n[backends.a]", "is not valid TOML"),
        ("default", "is not valid TOML"),
    ],
)
def test_a_mistake_in_the_file_names_file_and_key(write: Write, text: str, reason: str) -> None:
    path = write(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value).startswith(str(path))
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tool = 3", "'tool' must be a table"),
        ("[tool]\njobcontract = 3", "'jobcontract' must be a table"),
        ("[tool.jobcontract]\ndefualt = 3", "did you mean 'default'?"),
    ],
)
def test_a_mistake_in_pyproject_toml(
    text: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"pyproject\.toml") as caught:
        load()
    assert reason in str(caught.value)


def test_a_file_that_cant_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load(tmp_path / "missing.toml")
    with pytest.raises(ConfigError, match="does not exist"):
        load(JOBCONTRACT_CONFIG=str(tmp_path / "missing.toml"))
    with pytest.raises(ConfigError, match="can't be read"):
        load(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'default = "\xe9"')
    with pytest.raises(ConfigError, match="can't be read"):
        load(tmp_path / "latin.toml")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        (
            "JOBCONTRACT_DEFUALT",
            "a",
            "JOBCONTRACT_DEFUALT is not a setting of jobcontract; did you mean 'JOBCONTRACT_DEFAULT'?",
        ),
        ("jobcontract_defualt", "a", "did you mean 'JOBCONTRACT_DEFAULT'?"),
        ("JOBCONTRACT_SOURCE", "a", "is not a setting"),
        ("JOBCONTRACT_WORKER__CONCURENCY", "3", "did you mean 'concurrency'?"),
        ("JOBCONTRACT_WORKER__CONCURRENCY", "three", "JOBCONTRACT_WORKER__CONCURRENCY: 'worker.concurrency'"),
        ("JOBCONTRACT_BACKENDS", "not json", "JOBCONTRACT_*"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(
    name: str, value: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        load_settings(environment={name: value})
    assert reason in str(caught.value)


def test_an_unknown_store_names_the_nearest(write: Write) -> None:
    settings = load(write('[backends.postgres]\nurl = "sqlite://"\n[backends.redis]\nurl = "sqlite://"'))
    with pytest.raises(ConfigError, match="did you mean 'postgres'"):
        settings.store("postgre")
    with pytest.raises(ConfigError, match="known are: postgres, redis"):
        settings.store("xyzzy")
    with pytest.raises(ConfigError, match="none is the default; set default to one of: postgres, redis"):
        settings.store()
    with pytest.raises(ConfigError, match=r"add \[backends.main\]"):
        Settings().store("main")


def test_a_bad_url_names_its_key(write: Write) -> None:
    settings = load(write('[backends.main]\nurl = "postgresql://h:port/db"'))
    with pytest.raises(ConfigError, match=r"backends\.main\.url: the postgresql URL has a port"):
        settings.store()


# -- A driver's own options ----------------------------------------------------------------------------------


class Options(StoreOptions):
    pool: int = 8
    timeout: PositiveDuration = timedelta(seconds=3)


def settings_of(url: str, **options: object) -> StoreSettings:
    return StoreSettings("main", StoreURL.parse(url), options)


def test_options_come_from_the_table_and_the_url() -> None:
    assert settings_of("x://h").read_options(Options) == Options()
    assert settings_of("x://h?timeout=5s", pool=2).read_options(Options) == Options(
        pool=2, timeout=timedelta(seconds=5)
    )


@pytest.mark.parametrize(
    ("url", "options", "reason"),
    [
        ("x://h?pool=1", {"pool": 2}, "backend 'main': 'pool' is set in the URL and beside it; keep one"),
        ("x://h?pol=1", {}, "backend 'main': 'pol' is not a setting; did you mean 'pool'?"),
        ("x://h", {"xyzzy": 1}, "backend 'main': 'xyzzy' is not a setting; known are: pool, timeout"),
        ("x://h?pool=many", {}, "backend 'main': 'pool': input should be a valid integer"),
        ("x://h?timeout=0", {}, "backend 'main': 'timeout': must be longer than nothing"),
    ],
)
def test_a_mistake_in_an_option_names_store_and_option(
    url: str, options: dict[str, object], reason: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_of(url, **options).read_options(Options)
    assert reason in str(caught.value)


# -- Secrets -------------------------------------------------------------------------------------------------


def test_settings_show_no_password(write: Write) -> None:
    settings = load(write(f'[backends.main]\nurl = "x://u:{CANARY}@h?key={CANARY}"\npassword = "{CANARY}"'))
    for shown in (settings, settings.backends, settings.store(), settings.store().url, settings.worker):
        assert CANARY not in repr(shown) + str(shown)


@pytest.mark.parametrize(
    "text",
    [
        f'[backends]\nmain = "x://u:{CANARY}@h"',
        f'[backends.main]\nurl = ["x://u:{CANARY}@h"]',
        f'[backends.main]\nurll = "x://u:{CANARY}@h"',
        f'backends = "x://u:{CANARY}@h"',
        f'default = ["{CANARY}"]',
        f'[backends.main]\nurl = "x://u:{CANARY}@h\n',
        f"[backends.main]\nurl = x://u:{CANARY}@h",
        f'[worker]\nconcurrency = "{CANARY}"',
    ],
)
def test_a_mistake_in_the_file_shows_no_password(write: Write, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write(text))
    assert CANARY not in str(caught.value) + repr(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql:/u:{CANARY}@h/db",
        f"postgresql:u:{CANARY}@h/db",
        f"u:{CANARY}@h/db",
        f"host=h password={CANARY}",
        f"postgresql//u:{CANARY}@h/db",
    ],
)
def test_a_url_that_is_taken_for_a_name_is_not_shown(write: Write, text: str) -> None:
    configured = load(write('[backends.main]\nurl = "sqlite://"'))
    for settings in (Settings(), configured):
        with pytest.raises(ConfigError, match="this is neither") as caught:
            settings.store(text)
        assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("JOBCONTRACT_BACKENDS", f'{{"main": {{"url": "{CANARY}"'),
        ("JOBCONTRACT_BACKENDS", f'["{CANARY}"]'),
        ("JOBCONTRACT_BACKENDS__MAIN", f"x://u:{CANARY}@h"),
        ("JOBCONTRACT_BACKENDS__MAIN__URLL", CANARY),
        ("JOBCONTRACT_WORKER__CONCURRENCY", CANARY),
    ],
)
def test_a_mistake_in_the_environment_shows_no_password(
    name: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        load_settings(environment={name: value})
    assert CANARY not in str(caught.value) + repr(caught.value)
    assert caught.value.__suppress_context__


def test_a_mistake_in_an_option_shows_no_value() -> None:
    with pytest.raises(ConfigError) as caught:
        settings_of(f"x://h?pool={CANARY}").read_options(Options)
    assert CANARY not in str(caught.value)
