-- One row. Every change begins by counting it, so changes happen one after another.
CREATE TABLE admittance_state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    revision INTEGER NOT NULL
) STRICT;
INSERT INTO admittance_state (id, revision) VALUES (1, 1);

-- Times are in seconds since 1970. Numbers are never used again, so nobody inherits the clusters of a deleted user.
CREATE TABLE admittance_users (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    is_super_user INTEGER NOT NULL,
    user_groups TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE admittance_user_tokens (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id INTEGER NOT NULL REFERENCES admittance_users (id) ON DELETE CASCADE,
    digest TEXT NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;

CREATE TABLE admittance_clusters (
    id TEXT NOT NULL PRIMARY KEY,
    identifier TEXT NOT NULL UNIQUE,
    provider TEXT NOT NULL,
    creator_id INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    project_id TEXT,
    bcs_cluster_id TEXT,
    cluster_type TEXT,
    UNIQUE (project_id, bcs_cluster_id)
) STRICT;

CREATE TABLE admittance_permissions (
    cluster_id TEXT NOT NULL REFERENCES admittance_clusters (id) ON DELETE CASCADE,
    user_id INTEGER NOT NULL REFERENCES admittance_users (id) ON DELETE CASCADE,
    permission TEXT NOT NULL,
    PRIMARY KEY (cluster_id, user_id)
) STRICT;

CREATE TABLE admittance_register_tokens (
    cluster_id TEXT NOT NULL PRIMARY KEY REFERENCES admittance_clusters (id) ON DELETE CASCADE,
    digest TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at INTEGER
) STRICT;

-- The token is sealed with a key of `keyFile`.
CREATE TABLE admittance_credentials (
    cluster_id TEXT NOT NULL PRIMARY KEY REFERENCES admittance_clusters (id) ON DELETE CASCADE,
    server_addresses TEXT NOT NULL,
    ca TEXT NOT NULL,
    sealed_token TEXT NOT NULL,
    cluster_domain TEXT NOT NULL,
    reported_at INTEGER NOT NULL
) STRICT;
