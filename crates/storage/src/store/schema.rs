//! The tables, and the migration of a database from an earlier version.

use std::path::Path;

use rusqlite::Connection;

use super::error::StoreError;

/// Marks the file as Tribune's: "Trib".
const APPLICATION_ID: i64 = 0x5472_6962;

/// Each step migrates a database from the version that is the step's index to the next. Steps are never edited, only added;
/// SQLite stores their text, comments included.
const STEPS: [&str; 7] = [
    // `ledger` is the source of truth. Entries are found by position; a CID is found through `cid_runs`, because an index in
    // CID order would make every entry dirty a page of its own. The other tables are views over it, rebuilt by `views`.
    "CREATE TABLE ledger (
        idx         INTEGER PRIMARY KEY,  -- place in the log, from 0
        cid         TEXT NOT NULL,
        quality     TEXT NOT NULL,
        entity_id   TEXT NOT NULL,
        seq         INTEGER NOT NULL,     -- place in the entity's history, from 0
        prev_idx    INTEGER,              -- the entity's previous entry: a history is read backwards along this
        target      TEXT NOT NULL,
        actor       TEXT NOT NULL,
        source      TEXT NOT NULL,
        parents     TEXT NOT NULL,        -- JSON array of CIDs
        tags        TEXT NOT NULL,        -- JSON array
        payload     TEXT NOT NULL,        -- canonical JSON object
        attested_by TEXT,
        proof       TEXT,
        envelope    TEXT,
        timestamp   TEXT NOT NULL
    ) STRICT;
    CREATE TABLE entities (
        entity_id TEXT PRIMARY KEY,
        next_seq  INTEGER NOT NULL,
        last_idx  INTEGER NOT NULL,
        head      TEXT NOT NULL           -- CID of the last entry
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE tree_tiles (
        level INTEGER NOT NULL,
        n     INTEGER NOT NULL,
        root  BLOB NOT NULL,
        nodes BLOB NOT NULL,              -- level 0: 256 CIDs; above: 256 roots of the level below
        PRIMARY KEY (level, n)
    ) STRICT;
    CREATE TABLE cid_runs (
        run   INTEGER NOT NULL,           -- 65,536 entries each
        block INTEGER NOT NULL,           -- the first six bits of the CID
        keys  BLOB NOT NULL,              -- sorted: first eight bytes of a CID, place within the run
        PRIMARY KEY (run, block)
    ) STRICT;
    CREATE TABLE checkpoint (
        id   INTEGER PRIMARY KEY CHECK (id = 0),
        note TEXT NOT NULL                -- signed in the same commit as the newest entry
    ) STRICT;",
    // Views of sessions. Their rows are keyed by the position of the entry that they come from and chained backwards by it,
    // as entries are; a lookup by CID goes through the log.
    "CREATE TABLE sessions (
        id            TEXT PRIMARY KEY,     -- BLAKE3 of agent id, key and creation time
        agent_id      TEXT NOT NULL,
        session_key   TEXT NOT NULL UNIQUE,
        backend       TEXT NOT NULL,
        model         TEXT,
        mode          TEXT NOT NULL,        -- persistent, domain, oneshot
        state         TEXT NOT NULL,        -- idle, running, cancelled, closed
        pubkey        TEXT,                 -- the Ed25519 key the agent proved
        mandate       TEXT NOT NULL,
        last_activity TEXT NOT NULL,
        created_at    TEXT NOT NULL,
        closed_for    TEXT,
        turns         INTEGER NOT NULL,
        last_turn     INTEGER,              -- idx of the newest row of `turns`
        prev_cid      TEXT,                 -- its CID
        messages      INTEGER NOT NULL,
        last_message  INTEGER               -- idx of the newest row of `history`
    ) STRICT;
    CREATE TABLE turns (
        idx          INTEGER PRIMARY KEY,   -- place of the entry that began it
        id           TEXT NOT NULL,         -- CID of that entry
        session_id   TEXT NOT NULL,
        seq          INTEGER NOT NULL,
        prev_idx     INTEGER,
        prev_cid     TEXT,                  -- the turn before it
        input_hash   TEXT NOT NULL,         -- commitment; the vault has the words
        output_hash  TEXT,                  -- the same, once complete
        stop_reason  TEXT,
        usage        TEXT,                  -- JSON: {input_tokens, output_tokens}
        started_at   TEXT NOT NULL,
        completed_at TEXT,
        proof        TEXT
    ) STRICT;
    CREATE TABLE history (
        idx        INTEGER PRIMARY KEY,     -- place of the entry that tells of the message
        id         TEXT NOT NULL,           -- CID of that entry
        session_id TEXT NOT NULL,
        turn_id    TEXT,
        seq        INTEGER NOT NULL,
        prev_idx   INTEGER,
        role       TEXT NOT NULL,
        content    TEXT NOT NULL,           -- commitment under which the vault has the words
        ref        TEXT,                    -- the tool, or the letter
        created_at TEXT NOT NULL
    ) STRICT;
    CREATE TABLE open_work (
        cid         TEXT PRIMARY KEY,       -- the entry that began it
        kind        TEXT NOT NULL,          -- turn, tool_call, forget
        session_key TEXT NOT NULL,
        name        TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;",
    // Views of policy: pending approvals, grants, labels of data, uses of exceptions, and the freeze switch.
    "CREATE TABLE approvals (
        id          TEXT PRIMARY KEY,
        idx         INTEGER NOT NULL,       -- place of the request
        cid         TEXT NOT NULL,
        session_key TEXT NOT NULL,
        call        TEXT NOT NULL,          -- CID of the call that waits
        request     TEXT NOT NULL,          -- JSON, as it was asked
        state       TEXT NOT NULL,          -- pending, allowed, denied, expired, withdrawn
        votes       TEXT NOT NULL,          -- JSON array of who agreed
        decision    TEXT,
        decided_by  TEXT,
        decided_at  TEXT,
        reason      TEXT,
        grant_id    TEXT,
        created_at  TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX approvals_by_state ON approvals (state, idx);
    CREATE INDEX approvals_by_call ON approvals (call);
    CREATE TABLE grants (
        id         TEXT PRIMARY KEY,
        body       TEXT NOT NULL,           -- JSON, as it was given
        created_at TEXT NOT NULL,
        revoked_by TEXT,
        revoked_at TEXT
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE labels (
        resource TEXT PRIMARY KEY,          -- such as file:<agent>/<path>
        trust    TEXT NOT NULL,
        private  INTEGER NOT NULL,
        cid      TEXT NOT NULL              -- the entry that says so
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE exception_uses (
        idx INTEGER PRIMARY KEY,            -- place of the verdict
        id  TEXT NOT NULL,                  -- of the exception
        at  TEXT NOT NULL
    ) STRICT;
    CREATE INDEX exception_uses_by_id ON exception_uses (id, at);
    CREATE TABLE switches (
        name TEXT PRIMARY KEY,              -- frozen
        is_on INTEGER NOT NULL,
        by   TEXT NOT NULL,
        at   TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    ALTER TABLE sessions ADD COLUMN ancestors TEXT NOT NULL DEFAULT '[]';
    ALTER TABLE sessions ADD COLUMN tools TEXT NOT NULL DEFAULT 'null';
    ALTER TABLE sessions ADD COLUMN trust TEXT NOT NULL DEFAULT 'owner';
    ALTER TABLE sessions ADD COLUMN private INTEGER NOT NULL DEFAULT 0;",
    // Aggregated model costs, and the amounts by which limits were raised.
    "CREATE TABLE spend (
        day           TEXT NOT NULL,
        agent         TEXT NOT NULL,
        session_key   TEXT NOT NULL,        -- empty if it did not come from a session
        model         TEXT NOT NULL,        -- provider:model
        requests      INTEGER NOT NULL,
        input         INTEGER NOT NULL,
        output        INTEGER NOT NULL,
        cache_read    INTEGER NOT NULL,
        cache_written INTEGER NOT NULL,
        cost          INTEGER NOT NULL,     -- thousand-millionths
        without_price INTEGER NOT NULL,     -- requests
        estimated     INTEGER NOT NULL,     -- requests
        PRIMARY KEY (day, agent, session_key, model)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX spend_by_session ON spend (session_key);
    CREATE TABLE raises (
        scope  TEXT NOT NULL,               -- session, agent, day
        name   TEXT NOT NULL,
        day    TEXT NOT NULL,               -- empty for a session
        tokens INTEGER NOT NULL,
        cost   INTEGER NOT NULL,
        PRIMARY KEY (scope, name, day)
    ) STRICT, WITHOUT ROWID;",
    // The WAL epoch and the newest applied record, in the row that every commit writes anyway.
    "ALTER TABLE checkpoint ADD COLUMN book BLOB;
    ALTER TABLE checkpoint ADD COLUMN posted INTEGER NOT NULL DEFAULT 0;",
    // The folder that a session works in, if that is not its agent's own workspace.
    "ALTER TABLE sessions ADD COLUMN workspace TEXT;",
    // The session's additional directories, as JSON.
    "ALTER TABLE sessions ADD COLUMN further TEXT NOT NULL DEFAULT '[]';",
];

/// The version that this build writes.
pub(super) const VERSION: i64 = STEPS.len() as i64;

/// The version of a database; 0 before its tables are created.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Refuses a database of another program or of a newer version.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let failed = |error: rusqlite::Error| StoreError::from_sqlite(path, &error);
    let number = |pragma: &str| connection.query_row(pragma, [], |row| row.get::<_, i64>(0)).map_err(failed);
    let version = number("PRAGMA user_version")?;
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    if (version, tables) == (0, 0) {
        return Ok(());
    }
    if number("PRAGMA application_id")? != APPLICATION_ID {
        return Err(StoreError::NotOurs(path.to_owned()));
    }
    if version > VERSION {
        return Err(StoreError::Newer { path: path.to_owned(), found: version, known: VERSION });
    }
    Ok(())
}

/// Migrates the database to this version. Writes nothing if it has it already.
pub(super) fn migrate(connection: &Connection) -> Result<(), rusqlite::Error> {
    let version = version(connection)?;
    if version == VERSION {
        return Ok(());
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    for step in STEPS.iter().skip(usize::try_from(version).unwrap_or(0)) {
        connection.execute_batch(step)?;
    }
    let marks = format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; COMMIT;");
    connection.execute_batch(&marks)
}
