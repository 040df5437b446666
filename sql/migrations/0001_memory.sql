-- schema: memory
-- Everything here can be rebuilt by replaying memory.created, memory.embedded and memory.changed. Names are
-- not qualified: the runner sets the search path, so that the same files make a shadow to rebuild into.
-- `record_offset` is the offset of the record that a row came from: of two with the same version the later
-- in the log wins, in whatever order they are applied.

CREATE TABLE user_memories (
    id uuid PRIMARY KEY,
    user_id text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('window', 'log', 'profile', 'insight')),
    request_id uuid NOT NULL,
    payload bytea NOT NULL,
    importance smallint NOT NULL CHECK (importance BETWEEN 1 AND 10),
    pinned_at timestamptz,
    category text,
    date date NOT NULL,
    created_at timestamptz NOT NULL,
    source_session_ids text[] NOT NULL,
    first_message_id text NOT NULL,
    last_message_id text NOT NULL,
    first_position bigint NOT NULL,
    last_position bigint NOT NULL,
    source_mode text,
    provenance jsonb NOT NULL,
    offline boolean NOT NULL,
    text_version integer NOT NULL DEFAULT 0,
    topic_partition integer NOT NULL,
    record_offset bigint NOT NULL,
    indexed_at timestamptz NOT NULL DEFAULT now()
);

-- Who owns a memory, with its seq there. `place` is the owner's place in the sealed payload. What a recall filters
-- by, or orders a scope by, is repeated here: the scope is read from one index, and nothing else is looked up for it.
CREATE TABLE user_memory_characters (
    memory_id uuid NOT NULL REFERENCES user_memories ON DELETE CASCADE,
    user_id text NOT NULL,
    character_id text NOT NULL,
    place smallint NOT NULL,
    seq bigint NOT NULL,
    epoch integer NOT NULL,
    kind text NOT NULL,
    date date NOT NULL,
    created_at timestamptz NOT NULL,
    importance smallint NOT NULL,
    category text,
    source_mode text,
    plan_dates date[] NOT NULL,
    PRIMARY KEY (memory_id, character_id)
);
CREATE INDEX user_memory_characters_scope ON user_memory_characters (user_id, character_id, seq);
CREATE INDEX user_memory_characters_newest
    ON user_memory_characters (user_id, character_id, created_at DESC, memory_id DESC)
    INCLUDE (kind, date, importance, category, source_mode);
CREATE INDEX user_memory_characters_plans ON user_memory_characters (user_id, character_id)
    WHERE plan_dates <> '{}';
-- An index answers alone where the visibility map is up to date: after a 50th of new rows, not a fifth.
ALTER TABLE user_memory_characters SET (autovacuum_vacuum_insert_scale_factor = 0.02);

-- A memory with its owners, for look-ups by id.
CREATE VIEW stored_memories AS
SELECT m.id, m.user_id, m.kind, m.payload, m.importance, m.pinned_at IS NOT NULL AS pinned, m.date, m.created_at,
    m.source_session_ids, m.first_message_id, m.last_message_id, m.first_position, m.last_position, m.source_mode,
    m.offline, m.text_version, m.topic_partition, m.indexed_at, o.characters, o.seqs, o.epochs
FROM user_memories m
CROSS JOIN LATERAL (
    SELECT array_agg(character_id ORDER BY place) AS characters, array_agg(seq ORDER BY place) AS seqs,
        array_agg(epoch ORDER BY place) AS epochs
    FROM user_memory_characters WHERE memory_id = m.id
) AS o;

-- Tokens and vectors are rows of their own, not columns of user_memories: they come from other records, in
-- any order and before the memory too; vectors of several models can stand side by side; and a vector
-- shares its page with vectors only, so that a scope's are read without the payloads.
CREATE TABLE memory_tokens (
    memory_id uuid PRIMARY KEY,
    text_version integer NOT NULL,
    tokens bigint[] NOT NULL,
    offline boolean NOT NULL,
    record_offset bigint NOT NULL
);
-- The hashes are keyed by the user too: what is found here under one is of one user.
CREATE INDEX memory_tokens_tokens ON memory_tokens USING gin (tokens);

-- `sealed` holds a vector whose memory is not stored yet, and nothing else.
CREATE TABLE memory_vectors (
    memory_id uuid NOT NULL,
    embedding_model text NOT NULL,
    user_id text,
    text_version integer NOT NULL,
    embedding halfvec(768),
    sealed bytea,
    offline boolean NOT NULL,
    record_offset bigint NOT NULL,
    PRIMARY KEY (memory_id, embedding_model),
    CHECK ((embedding IS NULL) <> (sealed IS NULL)),
    CHECK ((embedding IS NULL) = (user_id IS NULL))
);
-- A halfvec(768) has 1,544 bytes: kept in the row, where reading it costs no second look-up.
ALTER TABLE memory_vectors ALTER COLUMN embedding SET STORAGE PLAIN;
-- A user's vectors side by side: 20,000 lie in 5,000 pages of this index, and in 17,000 of the table. Every distance
-- is computed from here, exactly. (Signs of the vectors first would read less, but of multilingual-e5's 20 nearest
-- among 7,000 they kept 14 in a thousand candidates.)
CREATE INDEX memory_vectors_scope ON memory_vectors (user_id, embedding_model) INCLUDE (memory_id, embedding)
    WHERE embedding IS NOT NULL;
ALTER TABLE memory_vectors SET (autovacuum_vacuum_insert_scale_factor = 0.02);

CREATE TABLE character_relationship_states (
    user_id text NOT NULL,
    character_id text NOT NULL,
    epoch integer NOT NULL,
    version bigint NOT NULL,
    payload bytea,
    record_offset bigint NOT NULL,
    PRIMARY KEY (user_id, character_id)
);

CREATE TABLE closed_windows (
    user_id text NOT NULL,
    character_ids text[] NOT NULL,
    epoch integer NOT NULL,
    number integer NOT NULL,
    request_id uuid NOT NULL,
    version bigint NOT NULL,
    status text NOT NULL CHECK (status IN ('remembered', 'skipped', 'parked', 'queued')),
    first_position bigint NOT NULL,
    last_position bigint NOT NULL,
    reason text,
    attempts integer NOT NULL,
    memory_ids uuid[] NOT NULL,
    closed_at timestamptz NOT NULL,
    record_offset bigint NOT NULL,
    PRIMARY KEY (user_id, character_ids, epoch, number)
);
CREATE INDEX closed_windows_request ON closed_windows (request_id);
CREATE INDEX closed_windows_memories ON closed_windows USING gin (memory_ids);
CREATE INDEX closed_windows_parked ON closed_windows (closed_at, request_id) WHERE status = 'parked';

-- A window is covered when its messages need not be recent talk any more (I11): it was skipped, or its memories are
-- stored with their tokens.
CREATE VIEW covered_windows AS
SELECT w.user_id, w.character_ids, w.epoch, w.number, w.request_id, w.first_position, w.last_position, w.memory_ids,
    w.status = 'skipped' OR (w.status = 'remembered' AND NOT EXISTS (
        SELECT FROM unnest(w.memory_ids) AS wanted (id)
        WHERE NOT EXISTS (SELECT FROM user_memories m WHERE m.id = wanted.id)
            OR NOT EXISTS (SELECT FROM memory_tokens t WHERE t.memory_id = wanted.id)
    )) AS covered
FROM closed_windows w;

-- Where the indexer continues: written in the transaction of the rows themselves.
CREATE TABLE applied_offsets (
    topic text NOT NULL,
    partition integer NOT NULL,
    next_offset bigint NOT NULL,
    PRIMARY KEY (topic, partition)
);
