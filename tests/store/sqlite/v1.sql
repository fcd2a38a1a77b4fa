-- A file as the first release wrote it, with a conversation in the middle of everything. Never to be changed: it is what
-- people have on their disks.
PRAGMA application_id = 1095977798;
CREATE TABLE clock (
    high_water INTEGER NOT NULL        -- the latest moment any row knows of
);
INSERT INTO clock VALUES (0);

CREATE TABLE seen (                    -- ids of accepted events
    event_id TEXT PRIMARY KEY,
    until INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX seen_until ON seen (until);

CREATE TABLE event (                   -- the mailboxes, and through `pointed` the decision lane
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation TEXT NOT NULL,
    stamp INTEGER NOT NULL,
    body TEXT NOT NULL,
    pointed INTEGER NOT NULL,
    wakes INTEGER NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX event_conversation ON event (conversation);
CREATE INDEX event_pointed ON event (pointed) WHERE pointed = 1;

CREATE TABLE mail (                    -- how many events wait
    waiting INTEGER NOT NULL
);
INSERT INTO mail VALUES (0);
CREATE TRIGGER event_in AFTER INSERT ON event BEGIN UPDATE mail SET waiting = waiting + 1; END;
CREATE TRIGGER event_out AFTER DELETE ON event BEGIN UPDATE mail SET waiting = waiting - 1; END;

CREATE TABLE part (                    -- the outboxes
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    part_id TEXT NOT NULL UNIQUE,
    conversation TEXT NOT NULL,
    stamp INTEGER NOT NULL,
    body TEXT NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX part_conversation ON part (conversation);

CREATE TABLE launch (                  -- actions to be executed
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    action_id TEXT NOT NULL
);
CREATE INDEX launch_action ON launch (action_id);

CREATE TABLE lane (                    -- what can be leased, and what has to be remembered between leases
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    lane TEXT NOT NULL,
    ready_at INTEGER,                  -- NULL: no work; else since when (or from when on) it may be leased
    due INTEGER NOT NULL DEFAULT 0,    -- not before, also for work that comes later
    tries INTEGER NOT NULL DEFAULT 0,
    died INTEGER NOT NULL DEFAULT 0,   -- the lease before was never finished
    worker TEXT,                       -- NULL: not held
    fence INTEGER,
    until REAL,                        -- on the machine's monotonic clock: means nothing to another process
    upto INTEGER,                      -- the last seq that was handed out (out: the first)
    UNIQUE (kind, lane)
);
CREATE INDEX lane_free ON lane (kind, ready_at) WHERE worker IS NULL;
CREATE INDEX lane_held ON lane (kind, until) WHERE worker IS NOT NULL;

CREATE TABLE step (                    -- checkpoints of turns
    seq INTEGER PRIMARY KEY,
    conversation TEXT NOT NULL,
    value TEXT NOT NULL
);
CREATE INDEX step_conversation ON step (conversation);

CREATE TABLE signal (                  -- for the holder of a turn
    seq INTEGER PRIMARY KEY,
    conversation TEXT NOT NULL,
    value TEXT NOT NULL
);
CREATE INDEX signal_conversation ON signal (conversation);

CREATE TABLE record (
    name TEXT PRIMARY KEY,
    value TEXT,                        -- NULL: deleted, kept a while for its version
    version INTEGER NOT NULL,
    expires INTEGER
) WITHOUT ROWID;
CREATE INDEX record_expires ON record (expires) WHERE expires IS NOT NULL;

CREATE TABLE log (
    log TEXT NOT NULL,
    seq INTEGER NOT NULL,
    stamp INTEGER NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (log, seq)
) WITHOUT ROWID;

CREATE TABLE timer (
    timer_id TEXT PRIMARY KEY,
    due INTEGER NOT NULL,
    incoming TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX timer_due ON timer (due);

CREATE TABLE cell (                    -- GCRA: the theoretical arrival time of the next unit
    name TEXT PRIMARY KEY,
    arrival INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX cell_arrival ON cell (arrival);

CREATE TABLE dead (
    seq INTEGER PRIMARY KEY,
    dead_id TEXT NOT NULL UNIQUE,
    conversation TEXT NOT NULL,
    reason TEXT NOT NULL,
    stamp INTEGER NOT NULL,
    held TEXT NOT NULL
);

UPDATE clock SET high_water = 1800000000000000;
INSERT INTO seen VALUES ('telegram:1:update 7', 4000000000000000), ('telegram:1:update 6', 1);
INSERT INTO event VALUES (1, 'agent/telegram:1:2', 1799999990000000, '{"kind":"Message","text":"first"}', 0, 1, 2);
INSERT INTO event VALUES (2, 'agent/telegram:1:2', 1799999991000000, '{"kind":"ButtonPress"}', 1, 0, 0);
INSERT INTO event VALUES (3, 'agent/telegram:1:2', 1799999992000000, '{"kind":"Message","text":"second"}', 0, 1, 0);
INSERT INTO part VALUES (1, 'p1', 'agent/telegram:1:2', 1799999993000000, '{"part":1}', 1);
INSERT INTO part VALUES (2, 'p2', 'agent/telegram:1:2', 1799999993000001, '{"part":2}', 0);
INSERT INTO launch VALUES (1, 'act');
INSERT INTO lane VALUES (1, 'turn', 'agent/telegram:1:2', 1799999990000000, 0, 1, 0, NULL, NULL, NULL, NULL);
INSERT INTO lane VALUES (2, 'out', 'agent/telegram:1:2', 1799999993000000, 0, 1, 0, 'gone', 1799999994000000, 77.5, 1);
INSERT INTO lane VALUES (3, 'action', 'act', 1799999995000000, 0, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO step VALUES (1, 'agent/telegram:1:2', '{"events":[1]}');
INSERT INTO step VALUES (2, 'agent/telegram:1:2', '"half way"');
INSERT INTO record VALUES ('action/act', '{"state":"approved"}', 3, NULL), ('gone', NULL, 2, 1799999999000000);
INSERT INTO log VALUES ('transcript', 1, 1799999980000000, '{"role":"user","content":"hello"}');
INSERT INTO timer VALUES ('expiry/act', 1800000900000000,
  '{"conversation":"agent/telegram:1:2","event_ids":["expiry/act"],"body":{"kind":"expiry"},"decides":true,'
  || '"wakes":false,"refusable":false,"keep_seconds":604800.0,"stamp":null}');
INSERT INTO cell VALUES ('telegram', 4000000000000000);
INSERT INTO dead VALUES (1, 'd1', 'agent/telegram:1:2', 'it cannot be read', 1799999970000000,
  '{"incoming":null,"part":{"part_id":"p0","conversation":"agent/telegram:1:2","body":{"part":0},"pool":"",'
  || '"stamp":1799999960000000,"tries":0},"payload":null}');
PRAGMA user_version = 1;
