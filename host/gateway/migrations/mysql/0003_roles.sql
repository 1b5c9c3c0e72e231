-- As in sqlite/0003_roles.sql.
CREATE TABLE admittance_role_grants (
    user_name VARCHAR(224) NOT NULL,
    role VARCHAR(32) NOT NULL,
    cluster VARCHAR(160) NOT NULL,
    namespace VARCHAR(64) NOT NULL,
    source VARCHAR(16) NOT NULL,
    PRIMARY KEY (user_name, role, cluster, namespace, source)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE admittance_leases (
    name VARCHAR(32) NOT NULL PRIMARY KEY,
    holder VARCHAR(64) NOT NULL,
    expires_at BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

INSERT INTO admittance_leases (name, holder, expires_at) VALUES ('roles', '', 0);
