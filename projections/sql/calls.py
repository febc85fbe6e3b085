"""The views whose row is a call: of a model, of a tool, of an acceptance check."""

from stepfold.projections.sql.shared import View

MODEL_CALLS = View(
    "model_calls",
    "One row a logical model call, whatever its retries.",
    {
        "run_id": "The run.",
        "seq": "Place of its start in the run; in an imported run that of its reply.",
        "step": "The step.",
        "call_id": "The call; NULL in an imported run.",
        "model": "The model that was asked last: the fallback, if there was one.",
        "started": "When it was asked, UTC.",
        "seconds": "From the start to the last landing, backoff included; NULL while nothing has landed.",
        "attempts": "Landings: replies and errors.",
        "outcome": "completed, failed or unfinished.",
        "error": "The kind of the last error, if the call did not end well.",
        "detail": "What was said of it.",
        "input_tokens": "Tokens of the prompt.",
        "output_tokens": "Tokens of the reply.",
        "estimated": "Whether the token counts are the engine's own.",
        "cache": "hit or miss; NULL when no cache was asked.",
        "finish_reason": "Why the server says the reply ended.",
        "text": "The reply, as it came.",
        "reasoning": "What the model thought before it.",
        "digest": "Digest of the exact request.",
        "cached_tokens": "Tokens of the prompt that the server had in its cache; NULL when it doesn't say.",
        "first_token_seconds": "Until the first piece of a streamed reply; NULL for others.",
        "cost": "What the reply cost, by the table of prices or by its model; 0 without either.",
    },
    """
    SELECT started.run_id, started.seq, started.step, started.call_id,
        coalesce(fallback.model, started.model), started.ts,
        date_diff('microseconds', started.ts, landings.ts) / 1e6, coalesce(landings.attempts, 0),
        CASE closings.kind WHEN 'ModelCompleted' THEN 'completed' WHEN 'ModelFailed' THEN 'failed'
            ELSE 'unfinished' END,
        if(closings.kind = 'ModelCompleted', NULL, coalesce(closings.error, landings.error)),
        if(closings.kind = 'ModelCompleted', NULL, landings.detail),
        replies.input_tokens, replies.output_tokens, replies.estimated, nullif(replies.cache, ''),
        replies.finish_reason, replies.text, nullif(replies.reasoning, ''), started.digest,
        replies.cached_tokens, replies.first_token, replies.cost
    FROM recorded.log AS started
    LEFT JOIN recorded.landings AS landings
        ON landings.run_id = started.run_id AND landings.opened = started.seq
    LEFT JOIN recorded.closings AS closings
        ON closings.run_id = started.run_id AND closings.opened = started.seq
    LEFT JOIN recorded.replies AS replies
        ON replies.run_id = landings.run_id AND replies.seq = landings.seq
    LEFT JOIN (
        SELECT run_id, opened, arg_max(model, seq) AS model FROM recorded.answers
        WHERE kind = 'FallbackSelected' GROUP BY ALL
    ) AS fallback ON fallback.run_id = started.run_id AND fallback.opened = started.seq
    WHERE started.kind = 'ModelStarted'
    UNION ALL
    SELECT run_id, seq, step, NULL, served_by, ts, NULL, 1, 'completed', NULL, NULL, input_tokens,
        output_tokens, estimated, NULL, finish_reason, text, nullif(reasoning, ''), NULL,
        cached_tokens, first_token, cost
    FROM recorded.replies WHERE imported
    """,
)

TOOL_CALLS = View(
    "tool_calls",
    "One row a call of a tool, run or refused.",
    {
        "run_id": "The run.",
        "seq": "Place of its start, or of its refusal, in the run.",
        "step": "The step.",
        "call_id": "The call.",
        "name": "The tool, by its normal name.",
        "arguments": "The tool's arguments; a JSON string if what the model wrote is no JSON.",
        "written": "What the model wrote for arguments: in the goal loop those of its whole action.",
        "started": "When it started, or was refused, UTC.",
        "seconds": "From the start to the landing; NULL for a call that never ran or has not landed.",
        "outcome": "completed, error (the model may react to it), failed, rejected, skipped or unfinished.",
        "error": "The kind of the error; for a rejected call the hop that refused it.",
        "detail": "What was said of it.",
        "result": "What the tool returned.",
        "output_bytes": "Size of the whole result.",
    },
    """
    WITH calls AS (
        SELECT * FROM recorded.log
        WHERE kind IN ('ToolStarted', 'ToolRejected', 'ToolArgumentsRejected', 'ToolSkipped', 'ToolCalled')
            OR (kind = 'UnknownToolCalled' AND recovery NOT LIKE 'rewrite%')
        QUALIFY row_number() OVER (
            PARTITION BY run_id, step, coalesce(answer_key, call_id)
            ORDER BY kind <> 'ToolStarted', kind = 'ToolSkipped', seq
        ) = 1
    ), wrote AS (
        SELECT calls.*, coalesce(actions.written, written_calls.written) AS written, actions.name AS action
        FROM calls
        LEFT JOIN recorded.actions AS actions USING (run_id, call_id)
        ASOF LEFT JOIN recorded.written_calls AS written_calls
            ON calls.run_id = written_calls.run_id AND calls.call_id = written_calls.call_id
            AND calls.seq > written_calls.seq
    )
    SELECT wrote.run_id, wrote.seq, wrote.step, wrote.call_id, wrote.name,
        CASE WHEN wrote.arguments IS NOT NULL THEN wrote.arguments
            WHEN written IS NULL THEN NULL
            WHEN NOT json_valid(written) THEN to_json(written)
            WHEN action = 'capability_call' THEN coalesce(written::JSON->'arguments', written::JSON)
            ELSE written::JSON END,
        written, wrote.ts, date_diff('microseconds', wrote.ts, landings.ts) / 1e6,
        CASE wrote.kind WHEN 'ToolCalled' THEN CASE
                WHEN refused.error IS NOT NULL THEN 'rejected'
                WHEN landings.kind IS NULL THEN 'unfinished'
                WHEN coalesce(landings.error, '') <> '' THEN 'error'
                ELSE 'completed' END
            WHEN 'ToolStarted' THEN CASE
                WHEN closings.kind = 'ToolFailed' THEN 'failed'
                WHEN closings.kind IS NULL THEN 'unfinished'
                WHEN coalesce(closings.error, '') <> '' THEN 'error'
                ELSE 'completed' END
            WHEN 'ToolSkipped' THEN 'skipped' ELSE 'rejected' END,
        CASE wrote.kind WHEN 'ToolStarted' THEN nullif(closings.error, '') WHEN 'ToolRejected' THEN wrote.hop
            WHEN 'UnknownToolCalled' THEN 'unknown_tool' WHEN 'ToolArgumentsRejected' THEN 'arguments'
            WHEN 'ToolCalled' THEN coalesce(refused.error, nullif(landings.error, ''))
            ELSE wrote.why END,
        coalesce(landings.detail, wrote.reason, refused.detail), landings.content, closings.output_bytes
    FROM wrote
    LEFT JOIN recorded.landings AS landings
        ON landings.run_id = wrote.run_id AND landings.opened = wrote.seq
    LEFT JOIN recorded.closings AS closings
        ON closings.run_id = wrote.run_id AND closings.opened = wrote.seq
    LEFT JOIN (
        SELECT run_id, step, call_id, any_value(error) AS error, any_value(detail) AS detail
        FROM recorded.log WHERE kind = 'RejectionRecorded' AND subject = 'call' GROUP BY ALL
    ) AS refused ON refused.run_id = wrote.run_id AND refused.step = wrote.step
        AND refused.call_id = wrote.call_id AND wrote.kind = 'ToolCalled'
    """,
)

CHECKS = View(
    "checks",
    "One row a run of an acceptance check.",
    {
        "run_id": "The run.",
        "seq": "Place of its start in the run.",
        "step": "The step.",
        "check_id": "The check, by its id in the config.",
        "command": "Its command.",
        "started": "When, UTC.",
        "seconds": "From the start to the landing.",
        "passed": "Whether it gave evidence; NULL while unfinished.",
        "exit_code": "The command's exit code; NULL when it could not run.",
        "output": "What it printed, as far as it was kept.",
        "digest": "Digest of the whole output.",
    },
    """
    WITH commands AS (
        SELECT run_id, spec.value->>'id' AS check_id, any_value(spec.value->>'command') AS command
        FROM recorded.log, json_each(config->'checks') AS spec WHERE kind = 'RunStarted' GROUP BY ALL
    )
    SELECT starts.run_id, starts.opened, starts.step, starts.call_id, commands.command, starts.ts,
        date_diff('microseconds', starts.ts, landings.ts) / 1e6, closings.passed, landings.exit_code,
        landings.output, landings.digest
    FROM recorded.starts AS starts
    LEFT JOIN recorded.landings AS landings
        ON landings.run_id = starts.run_id AND landings.opened = starts.opened
    LEFT JOIN recorded.closings AS closings
        ON closings.run_id = starts.run_id AND closings.opened = starts.opened
    LEFT JOIN commands ON commands.run_id = starts.run_id AND commands.check_id = starts.call_id
    WHERE starts.family = 'Check'
    """,
)
