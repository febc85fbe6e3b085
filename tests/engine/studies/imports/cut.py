"""How the traces over 200 KB were cut: python tests/engine/studies/imports/cut.py FOLDER_OF_THE_WHOLE_ONES.

Whole records are left out, and long texts shortened; nothing is added. What a cut file holds is counted
here from its records, in another way than the importer counts.
"""

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "traces"
PI_LINES = 130
LONGEST = 1500
TAU_RUNS = (1, 3, 7)


def main(whole: Path) -> None:
    counts = json.loads((whole / "counts.json").read_text())
    counts["pi/large-session.jsonl"]["runs"] = [cut_pi(whole)]
    cut_codex(whole)
    cut_inspect(whole)
    tau = "tau_bench/gpt-4o-airline.a.json"
    counts[tau]["runs"] = [counts[tau]["runs"][number] for number in TAU_RUNS]
    runs = json.loads((whole / tau).read_text())
    write(tau, json.dumps([runs[number] for number in TAU_RUNS], indent=1))
    write("counts.json", json.dumps(counts, indent=1))


def cut_pi(whole: Path) -> dict[str, Any]:
    """The first records, with their long texts shortened: the whole counts don't hold for them any more."""
    name = "pi/large-session.jsonl"
    records = [json.loads(line) for line in (whole / name).read_bytes().split(b"\n")[:PI_LINES]]
    write(name, "".join(json.dumps(shortened(record)) + "\n" for record in records))
    said = [record["message"] for record in records if record["type"] == "message"]
    replies = [message for message in said if message["role"] == "assistant"]
    calls = [block for reply in replies for block in reply["content"] if block["type"] == "toolCall"]
    results = [message for message in said if message["role"] == "toolResult"]
    answered = {result["toolCallId"] for result in results}
    same = [json.dumps([call["name"], call["arguments"]], sort_keys=True) for call in calls]
    streaks = [
        next((back for back in range(place + 1) if same[place - back] != same[place]), place + 1)
        for place in range(len(same))
    ]
    return {
        "run": "large-session.jsonl",
        "turns": len(replies),
        "calls": len(calls),
        "results": len(results),
        "rejected": 0,
        "errors": sum(result["isError"] for result in results),
        "inflight": sum(call["id"] not in answered for call in calls),
        "orphans": len(answered - {call["id"] for call in calls}),
        "rep": max(streaks),
        "trip3": next((place + 1 for place, streak in enumerate(streaks) if streak == 3), None),
        "end": f"file just stops; last reply stopReason {replies[-1]['stopReason']}, "
        f"last record {records[-1]['type']}",
    }


def cut_codex(whole: Path) -> None:
    """Most of the screen's noise and of the pieces is gone; the records that something happened all stay."""
    name = "codex_tui/binary-size-head.jsonl"
    kept = []
    for number, line in enumerate((whole / name).read_text().splitlines(keepends=True)):
        record = json.loads(line)
        kind = record["kind"] if record["kind"] != "codex_event" else record["payload"]["msg"]["type"]
        noise = kind in {"app_event", "key_event", "insert_history"} or kind.endswith("_delta")
        if not noise or number % 40 == 0 or number == 2511:
            kept.append(line)
    write(name, "".join(kept))


def cut_inspect(whole: Path) -> None:
    name = "inspect/browser.json"
    log = json.loads((whole / name).read_text())
    for sample in log["samples"]:
        sample["events"] = [event for event in sample["events"] if event["event"] not in {"sandbox", "state"}]
        for event in sample["events"]:
            event.pop("call", None)
    write(name, json.dumps(shortened(log), indent=1))


def shortened(value: Any) -> Any:
    match value:
        case str() if len(value) > LONGEST:
            return value[:LONGEST] + " [cut]"
        case list():
            return [shortened(item) for item in value]
        case dict():
            return {name: shortened(item) for name, item in value.items()}
        case _:
            return value


def write(name: str, text: str) -> None:
    path = HERE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
