-- schema: config
-- What people have decided and what was spent: not in the log, so it is not rebuilt with the schema memory, and
-- refers to nothing there. Models are written `provider:model`.

CREATE TABLE llm_task_assignments (
    task text PRIMARY KEY CHECK (task IN ('extraction', 'consolidation', 'insight')),
    model text NOT NULL,
    fallback text,
    assigned_by text NOT NULL,
    assigned_at timestamptz NOT NULL DEFAULT now()
);

-- Every change. `from_model` is null where the default of the settings was in effect.
CREATE TABLE llm_task_assignment_history (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task text NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now(),
    changed_by text NOT NULL,
    from_model text,
    from_fallback text,
    to_model text NOT NULL,
    to_fallback text
);
CREATE INDEX llm_task_assignment_history_task ON llm_task_assignment_history (task, id DESC);

-- Calls and tokens by day (UTC). Each worker process writes its own sums, as totals and not as differences: so
-- writing them again, after an answer that was lost, counts nothing twice.
CREATE TABLE model_usage (
    day date NOT NULL,
    task text NOT NULL,
    provider text NOT NULL,
    model text NOT NULL,
    worker uuid NOT NULL,
    calls bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    PRIMARY KEY (day, task, provider, model, worker)
);
