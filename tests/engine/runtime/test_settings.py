"""`stepfold.toml`: defaults, every key read into its place, and every mistake named."""

import contextlib
import string
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepfold.engine.capabilities.context import Network
from stepfold.engine.runtime.settings import Settings, SettingsError
from stepfold.engine.runtime.settings_file import parse_settings, read_settings
from stepfold.events.configuration import CheckSpec, Generation, Guards, Rule

WHOLE = b"""
[loop]
max_steps = 5
worker_slots = 1
context_window = 4000
model_request_timeout = 9
profile = "data"
durability = "full"
[model]
base_url = "http://localhost:8080/v1"
name = "small"
api_key_env = "MY_KEY"
mode = "text"
temperature = 0.5
max_tokens = 100
seed = 7
stop = ["\\n\\n"]
response_format = "json_schema"
[[checks]]
id = "unit"
command = "make test"
timeout = 60
[[checks]]
id = "style"
command = "make lint"
[policy]
shell.allow = ["make *", "ls"]
shell.deny = ["rm -rf"]
[sandbox]
backend = "landlock"
network = true
[sandbox.limits]
processes = 10
[memory]
enabled = false
[mcp.servers.files]
command = "files-server"
args = ["--root", "."]
[mcp.servers.web]
url = "http://localhost:9000/mcp"
env = {}
headers = { Authorization = "Bearer $TOKEN" }
timeout = 9
[guards]
cycle = 3
[web]
hosts = ["docs.example.org", "*.example.com"]
seconds = 5
[policy.tools]
deny = ["mcp.web.*"]
"""


def test_no_file_means_the_defaults(tmp_path: Path) -> None:
    assert read_settings(tmp_path) == Settings()
    assert parse_settings(b"") == Settings()
    assert (Settings().loop.max_steps, Settings().loop.context_window) == (80, 262_000)


def test_a_whole_file_is_read_into_its_places() -> None:
    settings = parse_settings(WHOLE)

    assert (settings.loop.max_steps, settings.loop.durability, settings.loop.profile) == (5, "full", "data")
    assert settings.loop.model_request_timeout == 9.0
    assert settings.generation() == Generation(
        mode="text", temperature=0.5, max_tokens=100, seed=7, stop=("\n\n",), response_format="json_schema"
    )
    assert settings.check_specs() == (CheckSpec("unit", "make test", 60.0), CheckSpec("style", "make lint"))
    assert (settings.sandbox.backend, settings.sandbox.limits.processes) == ("landlock", 10)
    assert settings.sandbox.limits.cpu_seconds == Settings().sandbox.limits.cpu_seconds
    assert not settings.memory.enabled
    assert settings.guards == Guards(cycle=3)
    assert settings.web_limits() == Network(hosts=("docs.example.org", "*.example.com"), seconds=5.0)
    assert settings.tool_rules() == (Rule("deny", "mcp.web.*"),)
    assert [server.name for server in settings.servers()] == ["files", "web"]
    assert settings.servers()[1].headers == (("Authorization", "Bearer $TOKEN"),)
    assert settings.mcp.servers["files"].args == ["--root", "."]
    assert settings.mcp.servers["web"].url == "http://localhost:9000/mcp"


def test_denials_are_asked_first() -> None:
    assert parse_settings(WHOLE).rules() == (
        Rule("deny", "rm -rf"),
        Rule("allow", "make *"),
        Rule("allow", "ls"),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[loop]\nmax_step = 1\n", "unknown key 'max_step' in [loop]; did you mean 'max_steps'?"),
        ("max_steps = 1\n", "unknown key 'max_steps' at the top level; known: loop, model, checks"),
        ("[policy]\nshel.allow = []\n", "unknown key 'shel' in [policy]; did you mean 'shell'?"),
        ("[policy.shell]\nalow = []\n", "unknown key 'alow' in [policy.shell]; did you mean 'allow'?"),
        ("[sandbox.limits]\nprocess = 1\n", "in [sandbox.limits]; did you mean 'processes'?"),
        ("[mcp.servers.x]\ncomand = ''\n", "in [mcp.servers.x]; did you mean 'command'?"),
        ("[guards]\nrepeat = 2\n", "unknown key 'repeat' in [guards]; did you mean 'rejection'?"),
        ("[[checks]]\nid = 'a'\ncommand = 'b'\ntimout = 1\n", "in [checks]; did you mean 'timeout'?"),
    ],
)
def test_an_unknown_key_names_the_nearest_one(text: str, said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parse_settings(text.encode(), "here/stepfold.toml")

    assert str(refused.value).startswith("here/stepfold.toml: ")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[loop]\nmax_steps = 1.5\n", "loop.max_steps"),
        ("loop = 3\n", "loop"),
        ("checks = 3\n", "checks"),
        ("[model]\nstop = 'x'\n", "model.stop"),
        ("[loop]\ncontext_window = 0\n", "loop.context_window is 0; it must be at least 1"),
        ("[loop]\nmodel_request_timeout = 0\n", "loop.model_request_timeout must be more than 0 seconds"),
        (
            "[loop]\nmodel_request_timeout = nan\n",
            "loop.model_request_timeout is nan; it must be finite",
        ),
        ("[loop]\nworker_slots = -1\n", "loop.worker_slots is -1"),
        ("[loop]\nmax_steps = 99999999999999999999\n", "loop.max_steps is 1e+20; it must be at most"),
        ("[model]\nmax_tokens = 0\n", "model.max_tokens is 0; it must be at least 1"),
        ("[sandbox]\nlimits.processes = -1\n", "sandbox.limits.processes is -1; it must be at least 1"),
        ("[[checks]]\nid = 'a'\ncommand = ' '\n", "the check 'a' has no command"),
        ("[[checks]]\nid = ''\ncommand = 'true'\n", "a check has an empty id"),
        ("[[checks]]\nid = 'a'\ncommand = 'true'\ntimeout = 0\n", "the timeout of the check 'a'"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(text: str, said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parse_settings(text.encode())

    assert said in str(refused.value)


@given(st.binary(max_size=200) | st.text(string.printable, max_size=200).map(str.encode))
def test_no_bytes_raise_anything_else(text: bytes) -> None:
    try:
        parse_settings(text)
    except SettingsError as refused:
        assert "\n" not in str(refused) or refused.args


SCALARS = st.sampled_from([0, -1, 2**70, True, "", "x", 0.5, float("nan"), float("inf")])
SHAPES = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=2),
    st.dictionaries(st.sampled_from(["id", "command", "shell", "limits", "servers"]), SCALARS, max_size=3),
)


@given(st.dictionaries(st.sampled_from([field.name for field in msgspec.structs.fields(Settings)]), SHAPES))
def test_no_shape_of_a_file_raises_anything_else(tree: dict[str, Any]) -> None:
    with contextlib.suppress(SettingsError):
        assert isinstance(parse_settings(in_toml(tree).encode()), Settings)


def in_toml(tree: dict[str, Any]) -> str:
    """Enough of TOML to write down those shapes, a key a line."""
    return "".join(f"{key} = {_value(value)}\n" for key, value in tree.items())


def _value(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case dict():
            return "{" + ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items()) + "}"
        case list():
            return "[" + ", ".join(_value(inner) for inner in value) + "]"
        case _:
            return repr(value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[checks]]\nid = "a"\ncommand = "true\\u0000"\n', "the check 'a' holds a NUL"),
        ("[guards]\ncycle = 1\n", "guards.cycle is 1; it must be 2 or more, or 0"),
        ("[guards]\nfailure = -2\n", "guards.failure is -2"),
        ("[web]\nseconds = 0\n", "web.seconds must be more than 0"),
        ("[web]\nbytes_limit = 0\n", "web.bytes_limit is 0"),
        ('[sandbox]\nreadable = ["data"]\n', "sandbox.readable names 'data'; write the whole path"),
        ("[mcp.servers.x]\n", "mcp.servers.x has neither a command nor a url"),
        ('[mcp.servers.x]\ncommand = "a"\nurl = "http://b"\n', "has both a command and a url"),
        ('[loop]\nkeep = ["/etc/*"]\n', "loop.keep has '/etc/*', which no path of the project fits"),
        ('[loop]\nkeep = ["../*.py"]\n', "loop.keep has '../*.py'"),
        ('[loop]\nkeep = [""]\n', "loop.keep has ''"),
        ('[loop]\nkeep = ["./a.py"]\n', "loop.keep has './a.py'"),
        ('[loop]\nkeep = ["docs//*.md"]\n', "loop.keep has 'docs//*.md'"),
        ('[mcp.servers.x]\nurl = "ftp://b"\n', "it starts with http:// or https://"),
        ('[mcp.servers."a.b"]\ncommand = "a"\n', "letters, digits, - or _"),
        ('[mcp.servers.x]\ncommand = "a"\ntimeout = 0\n', "timeout must be more than 0"),
        ('[mcp.servers.x]\ncommand = "a"\nargs = ["\\u0000"]\n', "holds a NUL"),
    ],
)
def test_what_no_run_could_use_is_refused_when_it_is_read(text: str, said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parse_settings(text.encode())

    assert said in str(refused.value)


def test_what_is_loaded_from_the_start_has_to_exist() -> None:
    assert parse_settings(b'[loop]\npreload = ["fs.read", "mcp.files.read"]').loop.preload == [
        "fs.read",
        "mcp.files.read",
    ]
    with pytest.raises(SettingsError, match=r"loop\.preload has 'fs\.mend'; there are fs\.list, fs\.read"):
        parse_settings(b'[loop]\npreload = ["fs.mend"]')
