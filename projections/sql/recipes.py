"""Questions people ask of their runs, each with a name, a sentence and the query that answers it."""

from msgspec import Struct


class Recipe(Struct, frozen=True):
    """A named query over the views. `answers` says what a row of its result is."""

    name: str
    answers: str
    query: str

    @property
    def example(self) -> str:
        """How to ask it on the command line."""
        return f"stepfold sql @{self.name}"


RECIPES = (
    Recipe(
        "outcomes",
        "How runs end, by model: how many, with how many steps and tokens in the middle.",
        """
        SELECT model, status, count(*) AS runs, median(steps) AS median_steps,
            median(rejected) AS median_rejected, median(input_tokens + output_tokens) AS median_tokens
        FROM runs GROUP BY model, status ORDER BY model, runs DESC, status
        """,
    ),
    Recipe(
        "rejection_rate",
        "Which errors each model's replies are rejected for, and how often in 100 replies.",
        """
        WITH judged AS (
            SELECT model, count(*) AS replies FROM steps
            WHERE outcome IN ('action', 'rejected') GROUP BY model
        ), rejected AS (
            SELECT model, error, count(*) AS rejected FROM steps
            WHERE outcome = 'rejected' GROUP BY model, error
        )
        SELECT judged.model, error, coalesce(rejected, 0) AS rejected, replies,
            round(100.0 * coalesce(rejected, 0) / replies, 1) AS percent
        FROM judged LEFT JOIN rejected ON judged.model IS NOT DISTINCT FROM rejected.model
        ORDER BY judged.model, rejected DESC, error
        """,
    ),
    Recipe(
        "capped",
        "Runs that used up their steps: what they last did, and how many replies were wasted.",
        """
        SELECT runs.run_id, runs.model, runs.goal, runs.steps, runs.rejected,
            coalesce(steps.action, steps.error) AS last_move
        FROM runs LEFT JOIN steps ON steps.run_id = runs.run_id AND steps.step = runs.steps
        WHERE runs.status = 'step_cap' ORDER BY runs.run_id
        """,
    ),
    Recipe(
        "repeats",
        "How often an action came in a row when a guard tripped; rejected replies in between don't count.",
        """
        WITH numbered AS (
            SELECT *, row_number() OVER (PARTITION BY run_id ORDER BY step) AS place,
                row_number() OVER (PARTITION BY run_id, action, arguments ORDER BY step) AS turn
            FROM steps WHERE outcome = 'action'
        ), counted AS (
            SELECT *, row_number() OVER (
                PARTITION BY run_id, action, arguments, place - turn ORDER BY step
            ) AS times FROM numbered
        )
        SELECT guards.run_id, guards.step, guards.guard, counted.action, counted.arguments, counted.times
        FROM guards ASOF LEFT JOIN counted ON guards.run_id = counted.run_id AND guards.step >= counted.step
        WHERE guards.verdict = 'guard' ORDER BY guards.run_id, guards.seq
        """,
    ),
    Recipe(
        "tool_latency",
        "How long each tool takes, in seconds: the middle, the slow tenth, the slowest hundredth, the worst.",
        """
        SELECT name, count(*) AS calls, quantile_cont(seconds, 0.5) AS p50,
            quantile_cont(seconds, 0.9) AS p90, quantile_cont(seconds, 0.99) AS p99, max(seconds) AS longest
        FROM tool_calls WHERE seconds IS NOT NULL GROUP BY name ORDER BY p90 DESC, name
        """,
    ),
    Recipe(
        "model_latency",
        "How long each model takes for a call, in seconds, and how fast it writes.",
        """
        SELECT model, count(*) AS calls, quantile_cont(seconds, 0.5) AS p50,
            quantile_cont(seconds, 0.9) AS p90, max(seconds) AS longest,
            sum(output_tokens) / nullif(sum(seconds), 0) AS tokens_per_second
        FROM model_calls WHERE outcome = 'completed' GROUP BY model ORDER BY p90 DESC, model
        """,
    ),
    Recipe(
        "tokens",
        "Tokens and cost by run and model; replies from the response cache are left out.",
        """
        SELECT run_id, model, count(*) AS replies, sum(input_tokens) AS input_tokens,
            sum(output_tokens) AS output_tokens, sum(cached_tokens) AS cached_tokens, sum(cost) AS cost,
            bool_or(estimated) AS estimated
        FROM usage WHERE billed GROUP BY run_id, model
        ORDER BY sum(input_tokens) + sum(output_tokens) DESC, run_id, model
        """,
    ),
    Recipe(
        "first_unmet",
        "For each run, the first check of its config that did not pass when last run, or never ran.",
        """
        WITH asked AS (
            SELECT run_id, spec.key::BIGINT AS place, spec.value->>'id' AS check_id
            FROM events, json_each(data->'$.config.checks') AS spec WHERE kind = 'RunStarted'
        ), latest AS (
            SELECT run_id, check_id, arg_max(passed, seq) AS passed, arg_max(exit_code, seq) AS exit_code,
                count(*) AS times
            FROM checks WHERE passed IS NOT NULL GROUP BY run_id, check_id
        )
        SELECT asked.run_id, asked.check_id, coalesce(times, 0) AS times, exit_code, status
        FROM asked LEFT JOIN latest USING (run_id, check_id) JOIN runs USING (run_id)
        WHERE NOT coalesce(passed, false)
        QUALIFY row_number() OVER (PARTITION BY asked.run_id ORDER BY place) = 1 ORDER BY asked.run_id
        """,
    ),
    Recipe(
        "diverge",
        "Where runs of one goal part ways: each beside the first of its goal, at the first other move.",
        """
        WITH firsts AS (
            SELECT goal, arg_min(run_id, (started, run_id)) AS first_run FROM runs
            WHERE goal IS NOT NULL GROUP BY goal
        ), pairs AS (
            SELECT goal, first_run, run_id FROM runs JOIN firsts USING (goal) WHERE run_id <> first_run
        ), moves AS (
            SELECT run_id, step,
                if(action IS NULL, coalesce(reply, error, outcome), concat(action, ' ', arguments)) AS move
            FROM steps
        ), lefts AS (
            SELECT first_run, pairs.run_id, step, move FROM pairs JOIN moves ON moves.run_id = first_run
        ), rights AS (
            SELECT first_run, pairs.run_id, step, move FROM pairs JOIN moves ON moves.run_id = pairs.run_id
        )
        SELECT first_run, run_id, step, lefts.move AS first_move, rights.move AS other_move
        FROM lefts FULL JOIN rights USING (first_run, run_id, step)
        WHERE lefts.move IS DISTINCT FROM rights.move
        QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY step) = 1 ORDER BY first_run, run_id
        """,
    ),
    Recipe(
        "model_errors",
        "What goes wrong with model calls: errors of single attempts, retried or not, by model.",
        """
        WITH asked AS (
            SELECT run_id, seq, data->>'model' AS model FROM events
            WHERE kind IN ('ModelStarted', 'FallbackSelected')
        ), erred AS (
            SELECT run_id, seq, data->>'error' AS error, data->>'detail' AS detail FROM events
            WHERE kind = 'ModelErred'
        )
        SELECT model, error, count(*) AS times, count(DISTINCT erred.run_id) AS runs,
            arg_max(detail, (erred.run_id, erred.seq)) AS example
        FROM erred ASOF LEFT JOIN asked ON erred.run_id = asked.run_id AND erred.seq > asked.seq
        GROUP BY model, error ORDER BY times DESC, model, error
        """,
    ),
    Recipe(
        "tool_outcomes",
        "How the calls of each tool end: completed, an error, failed, or refused and at which hop.",
        """
        SELECT name, outcome, error, count(*) AS calls, count(DISTINCT run_id) AS runs
        FROM tool_calls GROUP BY name, outcome, error ORDER BY calls DESC, name, outcome, error
        """,
    ),
    Recipe(
        "flaky_checks",
        "Checks whose verdict changed within a run, and how often.",
        """
        WITH turns AS (
            SELECT run_id, check_id, passed,
                lag(passed) OVER (PARTITION BY run_id, check_id ORDER BY seq) AS before
            FROM checks WHERE passed IS NOT NULL
        )
        SELECT run_id, check_id, count(*) AS times, count(*) FILTER (passed <> before) AS changes,
            count(*) FILTER (before AND NOT passed) AS broke
        FROM turns GROUP BY run_id, check_id HAVING count(*) FILTER (passed <> before) > 0
        ORDER BY changes DESC, run_id, check_id
        """,
    ),
    Recipe(
        "context_growth",
        "How the request grows: tokens at the first step, the last, the most, and by step on average.",
        """
        SELECT run_id, arg_min(context_tokens, step) AS first_tokens,
            arg_max(context_tokens, step) AS last_tokens, max(context_tokens) AS most_tokens,
            (arg_max(context_tokens, step) - arg_min(context_tokens, step)) / nullif(max(step) - min(step), 0)
                AS tokens_per_step
        FROM steps WHERE context_tokens IS NOT NULL GROUP BY run_id ORDER BY most_tokens DESC, run_id
        """,
    ),
    Recipe(
        "stalls",
        "Where the time went: the ten longest waits for one event.",
        """
        SELECT run_id, seq, step, kind AS waited_for,
            date_diff('microseconds', lag(ts) OVER in_order, ts) / 1e6 AS seconds
        FROM events WINDOW in_order AS (PARTITION BY run_id ORDER BY seq)
        QUALIFY seconds > 0 ORDER BY seconds DESC, run_id, seq LIMIT 10
        """,
    ),
    Recipe(
        "unanswered",
        "Calls that started and never landed: where a run was cut off.",
        """
        SELECT run_id, step, 'model' AS family, call_id, model AS name, started
        FROM model_calls WHERE outcome = 'unfinished' AND seconds IS NULL
        UNION ALL
        SELECT run_id, step, 'tool', call_id, name, started
        FROM tool_calls WHERE outcome = 'unfinished' AND seconds IS NULL
        UNION ALL
        SELECT run_id, step, 'check', check_id, check_id, started
        FROM checks WHERE passed IS NULL AND seconds IS NULL
        ORDER BY run_id, step, family, call_id
        """,
    ),
)

BY_NAME = {recipe.name: recipe for recipe in RECIPES}
