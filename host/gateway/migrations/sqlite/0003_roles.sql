-- The roles of users in clusters, which become role bindings there.
CREATE TABLE admittance_role_grants (
    -- Such as `plain:alice`. The user need not exist yet.
    user_name TEXT NOT NULL,
    role TEXT NOT NULL,
    -- An ID of a cluster, or `*`.
    cluster TEXT NOT NULL,
    -- A namespace, `*` for all of them, or empty for the cluster.
    namespace TEXT NOT NULL,
    -- `configuration`, or the kind of policy of the authorization system.
    source TEXT NOT NULL,
    PRIMARY KEY (user_name, role, cluster, namespace, source)
) STRICT;

-- The gateway that does some work for all of them.
CREATE TABLE admittance_leases (
    name TEXT NOT NULL PRIMARY KEY,
    holder TEXT NOT NULL,
    -- In seconds of Unix time.
    expires_at INTEGER NOT NULL
) STRICT;

INSERT INTO admittance_leases (name, holder, expires_at) VALUES ('roles', '', 0);
