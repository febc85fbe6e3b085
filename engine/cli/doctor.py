"""`stepfold doctor`: what this machine has of what a run needs, and how to get what is missing."""

import asyncio
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from stepfold.engine.capabilities.checks import detect
from stepfold.engine.capabilities.sandbox import probe
from stepfold.engine.capabilities.servers import Servers
from stepfold.engine.capabilities.workspace import Workspace
from stepfold.engine.cli.output import say, store_address
from stepfold.engine.cli.run import project_folder
from stepfold.engine.models.discovery import find_local
from stepfold.engine.models.keys import key_of
from stepfold.engine.runtime.settings import Settings
from stepfold.engine.runtime.settings_file import read_settings
from stepfold.events.index_fault import fault_of
from stepfold.events.store import StoreError, open_store


@click.command(epilog="Example: stepfold doctor --project . --json")
@click.option("--project", default=".", metavar="DIR", help="The project [the current folder].")
@click.option("--store", metavar="DIR", help="Where runs are kept [STEPFOLD_STORE, else .stepfold].")
@click.option("--json", "for_machines", is_flag=True, help="One JSON object on stdout.")
def doctor(project: str, store: str | None, for_machines: bool) -> None:
    """Which sandbox, model endpoints, checks and MCP servers are there, and how to get what is missing.

    Exits with 1 when the store can't be used.
    """
    folder = project_folder(project)
    settings = read_settings(folder)
    found = findings(settings, folder, store_address(store, folder))
    if for_machines:
        click.echo(json.dumps(found))
    else:
        _tell(found)
    if found["store"]["problem"]:
        sys.exit(1)


def _tell(found: dict[str, Any]) -> None:
    say(f"stepfold  {found['stepfold']} on Python {found['python']}")
    sandbox = found["sandbox"]
    say(f"sandbox   {sandbox['backend'] or 'none found'}: {sandbox['why']}")
    if not sandbox["backend"]:
        say(f"          {sandbox['to_do']}")
    for model in found["models"]:
        say(f"model     {model['server']} at {model['base_url']}: {model['says']}")
    if not found["models"]:
        say(
            "model     no local server answers: `ollama serve`, or `llama-server -m MODEL.gguf`, "
            "or --model URL#NAME"
        )
    key = found["key"]
    say(f"key       {key['variable']}: {key['says']}")
    for check in found["checks"]:
        say(f"check     {check['id']}: {check['command']}")
    if not found["checks"]:
        say(
            "check     none configured or detected: add [[checks]] to stepfold.toml, "
            "or nothing can be verified"
        )
    for server in found["mcp_servers"]:
        left_out = f"; left out: {'; '.join(server['left_out'])}" if server["left_out"] else ""
        how = "contained" if server["contained"] else "not contained"
        says = server["error"] or f"answers with {server['tools']} tools, {how}{left_out}"
        say(f"mcp       {server['name']}: {says}")
    store_found = found["store"]
    runs = "1 run" if store_found["runs"] == 1 else f"{store_found['runs']} runs"
    say(f"store     {store_found['folder']}: {store_found['problem'] or runs}")


def findings(settings: Settings, folder: Path, store: Path | str) -> dict[str, Any]:
    """All that the doctor found, in the shape that `--json` prints."""
    found = probe(settings.sandbox.backend)
    checks = settings.check_specs() or detect(folder)
    return {
        "stepfold": version("stepfold"),
        "python": platform.python_version(),
        "sandbox": {
            "backend": found.backend,
            "why": found.why,
            "to_do": ""
            if found.backend
            else 'install bubblewrap (`apt install bubblewrap`), or set backend = "none" under [sandbox]',
        },
        "models": [
            {
                "server": model.server,
                "base_url": model.base_url,
                "models": list(model.models),
                "says": model.problem or ", ".join(model.models),
            }
            for model in find_local()
        ],
        "key": _key(settings.model.api_key_env),
        "checks": [{"id": check.id, "command": check.command} for check in checks],
        "mcp_servers": asyncio.run(_servers(settings, folder, found.backend)),
        "store": _store(store),
    }


def _key(variable: str) -> dict[str, Any]:
    """Whether there is a key. Never the key."""
    key = key_of(variable)
    state = "set" if key.value else "not set; local servers need none"
    return {"variable": variable, "set": bool(key.value), "says": key.problem or key.warning or state}


def _store(address: Path | str) -> dict[str, Any]:
    """What is there, without making it. A URL's password is never shown."""
    if isinstance(address, Path):
        runs = len(list(address.glob("runs/*.jsonl")))
        return {"folder": str(address), "runs": runs, "problem": fault_of(address / "store.sqlite")}
    try:
        with open_store(address) as opened:
            return {"folder": opened.name, "runs": len(opened.run_ids()), "problem": ""}
    except StoreError as error:
        where, _, problem = str(error).partition(": ")
        return {"folder": where, "runs": 0, "problem": problem or "it can't be used"}


async def _servers(settings: Settings, folder: Path, backend: str) -> list[dict[str, Any]]:
    """Start each configured server, ask it for its tools, and end it."""
    specs = settings.servers()
    servers = Servers(
        specs, workspace=Workspace(folder), limits=settings.sandbox.limits, readable=settings.readable()
    )
    try:
        listed = await servers.open(backend)
    finally:
        await servers.close()
    return [
        {
            "name": spec.name,
            "answers": not found.error,
            "tools": len(found.tools),
            "contained": bool(spec.command) and spec.contained and backend != "none",
            "error": found.error,
            "left_out": list(found.left_out),
        }
        for spec, found in zip(specs, listed, strict=True)
    ]
