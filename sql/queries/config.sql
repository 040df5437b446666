-- Which model does which task, and what was spent (schema config).

-- name: assignments
SELECT task, model, fallback, assigned_by, assigned_at FROM llm_task_assignments ORDER BY task;

-- name: lock_assignments
-- Changes wait for each other, or two of them could name the same predecessor; reading goes on.
LOCK TABLE llm_task_assignments IN SHARE ROW EXCLUSIVE MODE;

-- name: assignment
SELECT model, fallback FROM llm_task_assignments WHERE task = $1;

-- name: assign
INSERT INTO llm_task_assignments (task, model, fallback, assigned_by) VALUES ($1, $2, $3, $4)
ON CONFLICT (task) DO UPDATE SET
    model = excluded.model, fallback = excluded.fallback, assigned_by = excluded.assigned_by,
    assigned_at = excluded.assigned_at;

-- name: add_history
INSERT INTO llm_task_assignment_history (task, changed_by, from_model, from_fallback, to_model, to_fallback)
VALUES ($1, $2, $3, $4, $5, $6);

-- name: history
SELECT task, changed_at, changed_by, from_model, from_fallback, to_model, to_fallback
FROM llm_task_assignment_history
WHERE $1::text IS NULL OR task = $1
ORDER BY id DESC
LIMIT $2;

-- name: put_usage
INSERT INTO model_usage AS stored (
    worker, day, task, provider, model, calls, input_tokens, output_tokens
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (day, task, provider, model, worker) DO UPDATE SET
    calls = greatest(stored.calls, excluded.calls),
    input_tokens = greatest(stored.input_tokens, excluded.input_tokens),
    output_tokens = greatest(stored.output_tokens, excluded.output_tokens);

-- name: spent_by_others
SELECT coalesce(sum(input_tokens + output_tokens), 0)::bigint FROM model_usage
WHERE day = $1 AND worker <> $2;
