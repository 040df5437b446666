-- name: candidates
-- $1 user, $2 characters, $3 query vector, $4 its model, $5 hashes of the query's tokens, $6 kinds, $7 and $8 first
-- and last date, $9 rows a path, $10 least importance for a slot, $11 slots, $12 source modes, $13 categories,
-- $14 how many vectors are compared exactly.
-- The scope comes first and is materialised, so that what is searched is exact and nothing else (a global index
-- under a filter finds a few of 20; design, section 6). With several characters a memory may be there more than
-- once. The plan is fixed before the scope is known (sql/pool.py) and must be right at every size: OFFSET 0 keeps a
-- subquery one look-up by key for each row, and `(… IN …) IS TRUE` a hashed look-up, where a join of two scopes may
-- become a nested loop.
WITH owned AS MATERIALIZED (
    SELECT memory_id, created_at, importance
    FROM user_memory_characters
    WHERE user_id = $1 AND character_id = ANY ($2::text[])
        AND ($6::text[] IS NULL OR kind = ANY ($6::text[]))
        AND ($7::date IS NULL OR date >= $7::date)
        AND ($8::date IS NULL OR date <= $8::date)
        AND ($12::text[] IS NULL OR source_mode = ANY ($12::text[]))
        AND ($13::text[] IS NULL OR category = ANY ($13::text[]))
),
near AS (
    SELECT v.memory_id, v.embedding <=> $3::halfvec AS distance
    FROM memory_vectors v
    WHERE $3::halfvec IS NOT NULL AND v.user_id = $1 AND v.embedding_model = $4 AND v.embedding IS NOT NULL
        AND (v.memory_id IN (SELECT memory_id FROM owned)) IS TRUE
    ORDER BY distance, v.memory_id
    LIMIT $9
),
matched AS MATERIALIZED (
    SELECT t.memory_id, q.token
    FROM unnest($5::bigint[]) AS q (token)
    CROSS JOIN LATERAL (
        SELECT memory_id FROM memory_tokens WHERE tokens @> ARRAY[q.token] OFFSET 0
    ) AS t
),
hits AS MATERIALIZED (
    SELECT memory_id, token FROM matched WHERE (memory_id IN (SELECT memory_id FROM owned)) IS TRUE
),
-- A token that few memories of the scope have says more (the IDF of BM25: Robertson and Zaragoza 2009, always
-- positive as in Lucene); a memory has each token once, so there is no term frequency.
weights AS MATERIALIZED (
    SELECT h.token, ln(1 + (scope.size - count(*) + 0.5) / (count(*) + 0.5)) AS weight
    FROM hits h CROSS JOIN (SELECT count(*)::float8 AS size FROM owned) AS scope
    GROUP BY h.token, scope.size
),
-- Rounded, so that the order in which they are added up parts no ties.
scored AS (
    SELECT memory_id, rank, rank() OVER (ORDER BY rank DESC) AS place
    FROM (
        SELECT h.memory_id, round(sum(w.weight)::numeric, 6)::float8 AS rank
        FROM hits h JOIN weights w USING (token)
        GROUP BY h.memory_id
    ) AS sums
),
worded AS (
    SELECT s.memory_id, s.rank
    FROM scored s
    CROSS JOIN LATERAL (SELECT created_at FROM user_memories WHERE id = s.memory_id OFFSET 0) AS m
    WHERE s.place <= $9
    ORDER BY s.rank DESC, m.created_at DESC, s.memory_id
    LIMIT $9
),
newest AS (
    SELECT memory_id FROM owned ORDER BY created_at DESC, memory_id LIMIT $9 * cardinality($2::text[])
),
weighty AS (
    SELECT memory_id FROM owned
    WHERE importance >= $10
    ORDER BY importance DESC, created_at DESC, memory_id
    LIMIT $11 * cardinality($2::text[])
),
found AS (
    SELECT memory_id, min(distance) AS distance, max(rank) AS rank,
        bool_or(is_newest) AS is_newest, bool_or(is_weighty) AS is_weighty
    FROM (
        SELECT memory_id, distance, NULL::float8 AS rank, false AS is_newest, false AS is_weighty FROM near
        UNION ALL SELECT memory_id, NULL, rank, false, false FROM worded
        UNION ALL SELECT memory_id, NULL, NULL, true, false FROM newest
        UNION ALL SELECT memory_id, NULL, NULL, false, true FROM weighty
    ) AS paths
    GROUP BY memory_id
)
SELECT m.*, f.distance, f.rank, f.is_newest, f.is_weighty,
    EXISTS (
        SELECT FROM memory_vectors v WHERE v.memory_id = m.id AND v.embedding_model = $4 AND v.offline
    ) AS offline_vector,
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
CROSS JOIN LATERAL (SELECT * FROM stored_memories WHERE id = f.memory_id OFFSET 0) AS m;

-- name: memories_page
-- Newest first, past the row that ($7, $8) names.
SELECT m.*
FROM (
    SELECT memory_id, created_at
    FROM user_memory_characters
    WHERE user_id = $1 AND character_id = $2
        AND ($3::text[] IS NULL OR kind = ANY ($3::text[]))
        AND ($4::date IS NULL OR date >= $4::date)
        AND ($5::date IS NULL OR date <= $5::date)
        AND ($7::timestamptz IS NULL OR (created_at, memory_id) < ($7::timestamptz, $8::uuid))
        AND ($9::text[] IS NULL OR category = ANY ($9::text[]))
    ORDER BY created_at DESC, memory_id DESC
    LIMIT $6
) AS page
CROSS JOIN LATERAL (SELECT * FROM stored_memories WHERE id = page.memory_id OFFSET 0) AS m
ORDER BY page.created_at DESC, page.memory_id DESC;

-- name: exhaustive
-- Oldest first, past the row that ($9, $10, $11) names; a memory that several characters have is there once.
SELECT m.*
FROM (
    SELECT DISTINCT date, created_at, memory_id
    FROM user_memory_characters
    WHERE user_id = $1 AND character_id = ANY ($2::text[])
        AND ($3::text[] IS NULL OR kind = ANY ($3::text[]))
        AND ($4::date IS NULL OR date >= $4::date)
        AND ($5::date IS NULL OR date <= $5::date)
        AND ($6::text[] IS NULL OR source_mode = ANY ($6::text[]))
        AND ($7::text[] IS NULL OR category = ANY ($7::text[]))
        AND ($9::date IS NULL OR (date, created_at, memory_id) > ($9::date, $10::timestamptz, $11::uuid))
    ORDER BY date, created_at, memory_id
    LIMIT $8
) AS page
CROSS JOIN LATERAL (SELECT * FROM stored_memories WHERE id = page.memory_id OFFSET 0) AS m
ORDER BY page.date, page.created_at, page.memory_id;

-- name: in_scope
-- Every memory in scope, newest first, past the row that ($10, $11) names: its similarity to $8 by the model $9, and
-- the first filter that it does not pass.
SELECT m.*, v.embedded, v.distance,
    CASE
        WHEN NOT page.kind = ANY ($3::text[]) THEN 'kinds'
        WHEN page.category IS NULL AND $7::text[] IS NOT NULL OR NOT page.category = ANY ($7::text[])
            THEN 'categories'
        WHEN page.date < $4::date THEN 'date_from'
        WHEN page.date > $5::date THEN 'date_to'
        WHEN page.source_mode IS NULL AND $6::text[] IS NOT NULL OR NOT page.source_mode = ANY ($6::text[])
            THEN 'source_modes'
    END AS filtered
FROM (
    SELECT DISTINCT memory_id, created_at, kind, category, date, source_mode
    FROM user_memory_characters
    WHERE user_id = $1 AND character_id = ANY ($2::text[])
        AND ($10::timestamptz IS NULL OR (created_at, memory_id) < ($10::timestamptz, $11::uuid))
    ORDER BY created_at DESC, memory_id DESC
    LIMIT $12
) AS page
CROSS JOIN LATERAL (SELECT * FROM stored_memories WHERE id = page.memory_id OFFSET 0) AS m
LEFT JOIN LATERAL (
    SELECT true AS embedded, embedding <=> $8::halfvec AS distance
    FROM memory_vectors
    WHERE memory_id = page.memory_id AND embedding_model = $9 AND embedding IS NOT NULL
    OFFSET 0
) AS v ON true
ORDER BY page.created_at DESC, page.memory_id DESC;

-- name: with_plans
-- The newest memories with a plan for one of the days from $3 to $4.
SELECT m.*
FROM (
    SELECT DISTINCT memory_id, created_at
    FROM user_memory_characters
    WHERE user_id = $1 AND character_id = ANY ($2::text[]) AND plan_dates <> '{}'
        AND EXISTS (SELECT FROM unnest(plan_dates) AS day WHERE day BETWEEN $3 AND $4)
    ORDER BY created_at DESC, memory_id DESC
    LIMIT $5
) AS page
CROSS JOIN LATERAL (SELECT * FROM stored_memories WHERE id = page.memory_id OFFSET 0) AS m
ORDER BY page.created_at DESC, page.memory_id DESC;

-- name: pair_summary
SELECT owned.memories, owned.last_seq, owned.last_memory_at,
    r.epoch IS NOT NULL AS related, r.payload, r.epoch, r.version
FROM (
    SELECT count(*) AS memories, coalesce(max(seq), 0) AS last_seq, max(created_at) AS last_memory_at
    FROM user_memory_characters WHERE user_id = $1 AND character_id = $2
) AS owned
LEFT JOIN character_relationship_states r ON r.user_id = $1 AND r.character_id = $2;

-- name: coverage
-- The end of the unbroken run of covered windows from the first on (I11), and the covered windows past it.
WITH windows AS (
    SELECT number, first_position, last_position, covered,
        bool_and(covered) OVER (ORDER BY number) AND number = row_number() OVER (ORDER BY number) AS unbroken
    FROM covered_windows
    WHERE user_id = $1 AND character_ids = $2::text[] AND epoch = $3
)
SELECT coalesce(max(last_position) FILTER (WHERE unbroken), 0) AS position,
    coalesce(array_agg(first_position ORDER BY number) FILTER (WHERE covered AND NOT unbroken), '{}') AS firsts,
    coalesce(array_agg(last_position ORDER BY number) FILTER (WHERE covered AND NOT unbroken), '{}') AS lasts
FROM windows;

-- name: parked_windows
SELECT user_id, character_ids, epoch, number, request_id, first_position, last_position, reason, attempts,
    closed_at
FROM closed_windows
WHERE status = 'parked'
ORDER BY closed_at, request_id
LIMIT $1;
