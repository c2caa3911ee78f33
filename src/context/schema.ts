// Tables of a store of runs. A run is one conversation with its archive and its events. Block rows are never
// deleted: a block that left the history has no `place` and is a part of a record. `user_version` has the
// version of the schema; a file of another version is refused, not migrated.
export const schemaVersion = 1;

export const schema = `
CREATE TABLE runs (
  id TEXT PRIMARY KEY,
  created_ms INTEGER NOT NULL,
  title TEXT NOT NULL,
  settings TEXT NOT NULL,            -- JSON, the harness's own
  instructions TEXT NOT NULL         -- JSON array of messages
) STRICT;

-- Originals, each once, word for word.
CREATE TABLE messages (
  run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  id INTEGER NOT NULL,
  block TEXT NOT NULL,               -- the block it first came in
  body TEXT NOT NULL,                -- JSON of the message
  sha256 TEXT NOT NULL,              -- of body
  PRIMARY KEY (run, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE blocks (
  run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  id TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('request', 'exchange', 'memory')),
  place INTEGER,                     -- order in the history; NULL: archived
  tokens INTEGER NOT NULL,
  tag TEXT,                          -- of a memory
  origin_tag TEXT, origin_block TEXT, -- of a copy
  PRIMARY KEY (run, id),
  CHECK ((kind = 'memory') = (tag IS NOT NULL)),
  CHECK ((origin_tag IS NULL) = (origin_block IS NULL))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX block_places ON blocks (run, place) WHERE place IS NOT NULL;

CREATE TABLE records (
  run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  tag TEXT NOT NULL,
  memory TEXT NOT NULL,
  summary TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  PRIMARY KEY (run, tag)
) STRICT, WITHOUT ROWID;

-- The blocks of a tag's range. A block is under one tag at most.
CREATE TABLE parts (
  run TEXT NOT NULL,
  block TEXT NOT NULL,
  tag TEXT NOT NULL,
  ordinal INTEGER NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('owned', 'ref', 'reused')),
  target_tag TEXT,                   -- ref: the memory's tag; reused: the owner's
  target_block TEXT,                 -- reused: the block that is owned there
  PRIMARY KEY (run, block),
  UNIQUE (run, tag, ordinal),
  FOREIGN KEY (run, tag) REFERENCES records(run, tag) ON DELETE CASCADE,
  FOREIGN KEY (run, block) REFERENCES blocks(run, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- What happened: turns, compactions, costs. For reports; no conversation is rebuilt from it.
CREATE TABLE events (
  run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  seq INTEGER NOT NULL,
  at_ms INTEGER NOT NULL,
  type TEXT NOT NULL,
  body TEXT NOT NULL,                -- JSON
  PRIMARY KEY (run, seq)
) STRICT, WITHOUT ROWID;
`;
