-- The id is the time in microseconds since 1970, made unique. `record` and `objects` are JSON; `objects` is read only
-- when a decision is shown as a whole, so it comes last.
CREATE TABLE admittance_decisions (
    id INTEGER PRIMARY KEY,
    uid TEXT NOT NULL,
    namespace TEXT NOT NULL,
    user_name TEXT NOT NULL,
    verdict TEXT NOT NULL,
    record TEXT NOT NULL,
    objects TEXT
) STRICT;
CREATE INDEX admittance_decisions_by_uid ON admittance_decisions (uid);
CREATE INDEX admittance_decisions_by_namespace ON admittance_decisions (namespace);
CREATE INDEX admittance_decisions_by_user ON admittance_decisions (user_name);
CREATE INDEX admittance_decisions_by_verdict ON admittance_decisions (verdict);

-- The chains that a request passed, with an empty stage; the stages that were called, with their chain and with an empty
-- one. So every filter by chain and stage is one range of the primary key, in the order of ids.
CREATE TABLE admittance_passages (
    chain TEXT NOT NULL,
    stage TEXT NOT NULL,
    id INTEGER NOT NULL,
    PRIMARY KEY (chain, stage, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX admittance_passages_by_id ON admittance_passages (id);
