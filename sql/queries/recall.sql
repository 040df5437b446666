-- name: candidates
-- $1 user, $2 characters, $3 query vector, $4 its model, $5 keyword query, $6 kinds, $7 and $8 first and last
-- date, $9 rows a path, $10 least importance for a slot, $11 slots, $12 source modes.
-- The scope comes first and is materialised, so that the sort by distance is exact and over nothing else
-- (a global index under a filter finds a few of 20; design, section 6).
WITH owned AS MATERIALIZED (
    SELECT memory_id, created_at
    FROM user_memory_characters
    WHERE user_id = $1 AND character_id = ANY ($2::text[])
        AND ($6::text[] IS NULL OR kind = ANY ($6::text[]))
        AND ($7::date IS NULL OR date >= $7::date)
        AND ($8::date IS NULL OR date <= $8::date)
        AND ($12::text[] IS NULL OR EXISTS (
            SELECT FROM user_memories m WHERE m.id = memory_id AND m.source_mode = ANY ($12::text[])
        ))
),
scope AS MATERIALIZED (
    SELECT memory_id, created_at FROM owned GROUP BY memory_id, created_at
),
near AS (
    SELECT v.memory_id, v.embedding <=> $3::halfvec AS distance
    FROM scope s JOIN memory_vectors v USING (memory_id)
    WHERE $3::halfvec IS NOT NULL AND v.embedding_model = $4 AND v.embedding IS NOT NULL
    ORDER BY distance, memory_id
    LIMIT $9
),
worded AS (
    -- The query is read once, by the subselect: as a cast it would be read again for every row.
    SELECT t.memory_id, ts_rank(t.search_vector, (SELECT $5::text::tsquery)) AS rank
    FROM scope s JOIN memory_tokens t USING (memory_id)
    WHERE $5::text IS NOT NULL AND t.search_vector @@ (SELECT $5::text::tsquery)
    ORDER BY rank DESC, s.created_at DESC, memory_id
    LIMIT $9
),
newest AS (
    SELECT memory_id FROM scope ORDER BY created_at DESC, memory_id LIMIT $9
),
weighty AS (
    SELECT s.memory_id
    FROM scope s JOIN user_memories m ON m.id = s.memory_id
    WHERE m.importance >= $10
    ORDER BY m.importance DESC, s.created_at DESC, s.memory_id
    LIMIT $11
),
found AS (
    SELECT memory_id, min(distance) AS distance, max(rank) AS rank,
        bool_or(is_newest) AS is_newest, bool_or(is_weighty) AS is_weighty
    FROM (
        SELECT memory_id, distance, NULL::real AS rank, false AS is_newest, false AS is_weighty FROM near
        UNION ALL SELECT memory_id, NULL, rank, false, false FROM worded
        UNION ALL SELECT memory_id, NULL, NULL, true, false FROM newest
        UNION ALL SELECT memory_id, NULL, NULL, false, true FROM weighty
    ) AS paths
    GROUP BY memory_id
)
SELECT m.id, m.user_id, m.kind, m.payload, m.importance, m.pinned_at IS NOT NULL AS pinned, m.date, m.created_at,
    m.source_session_ids, m.first_message_id, m.last_message_id, m.first_position, m.last_position,
    m.source_mode, m.offline OR coalesce(v.offline, false) AS offline,
    o.characters, o.seqs, o.epochs,
    f.distance, f.rank, f.is_newest, f.is_weighty,
    (
        SELECT jsonb_object_agg(asked.character_id, last.seq)
        FROM unnest($2::text[]) AS asked (character_id)
        CROSS JOIN LATERAL (
            SELECT seq FROM user_memory_characters
            WHERE user_id = $1 AND character_id = asked.character_id
            ORDER BY seq DESC LIMIT 1
        ) AS last
    ) AS last_seqs
FROM found f
JOIN user_memories m ON m.id = f.memory_id
LEFT JOIN memory_vectors v ON v.memory_id = f.memory_id AND v.embedding_model = $4
CROSS JOIN LATERAL (
    SELECT array_agg(character_id ORDER BY place) AS characters, array_agg(seq ORDER BY place) AS seqs,
        array_agg(epoch ORDER BY place) AS epochs
    FROM user_memory_characters WHERE memory_id = f.memory_id
) AS o;

-- name: memories_page
-- Newest first, past the row that ($7, $8) names.
SELECT m.id, m.user_id, m.kind, m.payload, m.importance, m.pinned_at IS NOT NULL AS pinned, m.date, m.created_at,
    m.source_session_ids, m.first_message_id, m.last_message_id, m.first_position, m.last_position,
    m.source_mode,
    m.offline OR EXISTS (SELECT FROM memory_vectors v WHERE v.memory_id = m.id AND v.offline) AS offline,
    o.characters, o.seqs, o.epochs
FROM (
    SELECT memory_id, created_at
    FROM user_memory_characters
    WHERE user_id = $1 AND character_id = $2
        AND ($3::text[] IS NULL OR kind = ANY ($3::text[]))
        AND ($4::date IS NULL OR date >= $4::date)
        AND ($5::date IS NULL OR date <= $5::date)
        AND ($7::timestamptz IS NULL OR (created_at, memory_id) < ($7::timestamptz, $8::uuid))
    ORDER BY created_at DESC, memory_id DESC
    LIMIT $6
) AS page
JOIN user_memories m ON m.id = page.memory_id
CROSS JOIN LATERAL (
    SELECT array_agg(character_id ORDER BY place) AS characters, array_agg(seq ORDER BY place) AS seqs,
        array_agg(epoch ORDER BY place) AS epochs
    FROM user_memory_characters WHERE memory_id = m.id
) AS o
ORDER BY page.created_at DESC, page.memory_id DESC;

-- name: pair_summary
SELECT owned.memories, owned.last_seq, owned.last_memory_at,
    r.epoch IS NOT NULL AS related, r.payload, r.epoch, r.version
FROM (
    SELECT count(*) AS memories, coalesce(max(seq), 0) AS last_seq, max(created_at) AS last_memory_at
    FROM user_memory_characters WHERE user_id = $1 AND character_id = $2
) AS owned
LEFT JOIN character_relationship_states r ON r.user_id = $1 AND r.character_id = $2;

-- name: covered_position
-- The end of the unbroken run of covered windows from the first on (I11): skipped, or remembered by memories
-- that are stored with their tokens.
WITH windows AS (
    SELECT number, last_position,
        status = 'skipped' OR (status = 'remembered' AND NOT EXISTS (
            SELECT FROM unnest(w.memory_ids) AS wanted (id)
            WHERE NOT EXISTS (SELECT FROM user_memories m WHERE m.id = wanted.id)
                OR NOT EXISTS (SELECT FROM memory_tokens t WHERE t.memory_id = wanted.id)
        )) AS covered
    FROM closed_windows w
    WHERE user_id = $1 AND character_ids = $2::text[] AND epoch = $3
)
SELECT coalesce(max(last_position), 0)
FROM (
    SELECT last_position, number,
        bool_and(covered) OVER (ORDER BY number) AS unbroken,
        row_number() OVER (ORDER BY number) AS place
    FROM windows
) AS run
WHERE unbroken AND number = place;

-- name: parked_windows
SELECT user_id, character_ids, epoch, number, request_id, first_position, last_position, reason, attempts,
    closed_at
FROM closed_windows
WHERE status = 'parked'
ORDER BY closed_at, request_id
LIMIT $1;
