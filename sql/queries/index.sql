-- What the indexer writes. A row gives way only to one of a higher version, or of the same version and later
-- in the log: so any order, and any number of times, ends in the same rows (I6).

-- name: upsert_memory
INSERT INTO user_memories AS stored (
    id, user_id, kind, request_id, payload, importance, date, created_at, source_session_ids,
    first_message_id, last_message_id, first_position, last_position, source_mode, provenance, offline,
    topic_partition, record_offset, category
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
ON CONFLICT (id) DO UPDATE SET
    user_id = excluded.user_id, kind = excluded.kind, request_id = excluded.request_id,
    payload = excluded.payload, importance = excluded.importance, date = excluded.date,
    created_at = excluded.created_at, source_session_ids = excluded.source_session_ids,
    first_message_id = excluded.first_message_id, last_message_id = excluded.last_message_id,
    first_position = excluded.first_position, last_position = excluded.last_position,
    source_mode = excluded.source_mode, provenance = excluded.provenance, offline = excluded.offline,
    topic_partition = excluded.topic_partition, record_offset = excluded.record_offset,
    category = excluded.category
WHERE excluded.record_offset >= stored.record_offset;

-- name: delete_other_owners
-- Owners that an earlier record of the same memory named and the winning one ($2 is its offset) does not.
DELETE FROM user_memory_characters
WHERE memory_id = $1 AND character_id <> ALL ($3::text[])
    AND EXISTS (SELECT FROM user_memories WHERE id = $1 AND record_offset = $2);

-- name: upsert_owner
INSERT INTO user_memory_characters (
    memory_id, user_id, character_id, place, seq, epoch, kind, date, created_at, importance, category, source_mode,
    plan_dates
)
SELECT $1, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14
WHERE EXISTS (SELECT FROM user_memories WHERE id = $1 AND record_offset = $2)
ON CONFLICT (memory_id, character_id) DO UPDATE SET
    user_id = excluded.user_id, place = excluded.place, seq = excluded.seq, epoch = excluded.epoch,
    kind = excluded.kind, date = excluded.date, created_at = excluded.created_at,
    importance = excluded.importance, category = excluded.category, source_mode = excluded.source_mode,
    plan_dates = excluded.plan_dates;

-- name: upsert_tokens
INSERT INTO memory_tokens AS stored (memory_id, text_version, tokens, offline, record_offset)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (memory_id) DO UPDATE SET
    text_version = excluded.text_version, tokens = excluded.tokens,
    offline = excluded.offline, record_offset = excluded.record_offset
WHERE (excluded.text_version, excluded.record_offset) > (stored.text_version, stored.record_offset);

-- name: upsert_vector
-- The same record may come again with its vector opened: that replaces the sealed one.
INSERT INTO memory_vectors AS stored (
    memory_id, embedding_model, text_version, embedding, sealed, offline, record_offset, user_id
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (memory_id, embedding_model) DO UPDATE SET
    text_version = excluded.text_version, embedding = excluded.embedding, sealed = excluded.sealed,
    user_id = excluded.user_id,
    offline = excluded.offline, record_offset = excluded.record_offset
WHERE (excluded.text_version, excluded.record_offset, excluded.embedding IS NOT NULL)
    > (stored.text_version, stored.record_offset, stored.embedding IS NOT NULL);

-- name: upsert_relationship
INSERT INTO character_relationship_states AS stored (
    user_id, character_id, epoch, version, payload, record_offset
) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (user_id, character_id) DO UPDATE SET
    epoch = excluded.epoch, version = excluded.version, payload = excluded.payload,
    record_offset = excluded.record_offset
WHERE (excluded.epoch, excluded.version, excluded.record_offset)
    > (stored.epoch, stored.version, stored.record_offset);

-- name: upsert_window
INSERT INTO closed_windows AS stored (
    user_id, character_ids, epoch, number, request_id, version, status, first_position, last_position,
    reason, attempts, memory_ids, closed_at, record_offset
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
ON CONFLICT (user_id, character_ids, epoch, number) DO UPDATE SET
    request_id = excluded.request_id, version = excluded.version, status = excluded.status,
    first_position = excluded.first_position, last_position = excluded.last_position,
    reason = excluded.reason, attempts = excluded.attempts, memory_ids = excluded.memory_ids,
    closed_at = excluded.closed_at, record_offset = excluded.record_offset
WHERE (excluded.version, excluded.record_offset) > (stored.version, stored.record_offset);

-- name: advance_offset
INSERT INTO applied_offsets AS stored (topic, partition, next_offset) VALUES ($1, $2, $3)
ON CONFLICT (topic, partition) DO UPDATE SET
    next_offset = greatest(stored.next_offset, excluded.next_offset);

-- name: applied_offsets
SELECT topic, partition, next_offset FROM applied_offsets;

-- name: covered
-- Which of these windows are covered: those of the memories $1, and those of the requests $2.
SELECT user_id, character_ids, epoch, number
FROM covered_windows
WHERE covered AND (memory_ids && $1::uuid[] OR request_id = ANY ($2::uuid[]));

-- name: covered_of_thread
SELECT number
FROM covered_windows
WHERE user_id = $1 AND character_ids = $2::text[] AND epoch = $3 AND covered
ORDER BY number DESC
LIMIT $4;

-- name: sealed_memories
SELECT id, user_id, payload, text_version, characters, seqs, epochs
FROM stored_memories m
WHERE id = ANY ($1::uuid[]);

-- name: sealed_vectors
SELECT memory_id, embedding_model, text_version, sealed, offline, record_offset
FROM memory_vectors
WHERE memory_id = ANY ($1::uuid[]) AND sealed IS NOT NULL;

-- name: memories_without_vector
-- By id, from $3 on; only what has been there for $4, so that what is on its way is left alone.
SELECT id, user_id, payload, text_version, characters, seqs, epochs
FROM stored_memories m
WHERE m.topic_partition = ANY ($1::integer[]) AND m.id > $3::uuid
    AND m.indexed_at < now() - $4::interval
    AND NOT EXISTS (
        SELECT FROM memory_vectors v
        WHERE v.memory_id = m.id AND v.embedding_model = $2 AND v.embedding IS NOT NULL
            AND v.text_version >= m.text_version
    )
ORDER BY m.id
LIMIT $5;

-- name: count_without_vector
SELECT count(*)
FROM user_memories m
WHERE m.topic_partition = ANY ($1::integer[])
    AND NOT EXISTS (
        SELECT FROM memory_vectors v
        WHERE v.memory_id = m.id AND v.embedding_model = $2 AND v.embedding IS NOT NULL
            AND v.text_version >= m.text_version
    );
