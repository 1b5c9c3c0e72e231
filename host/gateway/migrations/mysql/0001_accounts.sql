-- As in sqlite/0001_accounts.sql. The prefix keeps the tables apart from those of bcs-api in the same database, and
-- the collation keeps apart what differs only in case.
CREATE TABLE admittance_state (
    id BIGINT PRIMARY KEY,
    revision BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
INSERT INTO admittance_state (id, revision) VALUES (1, 1);

CREATE TABLE admittance_users (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    name VARCHAR(255) NOT NULL UNIQUE,
    is_super_user BIGINT NOT NULL,
    user_groups TEXT NOT NULL,
    created_at BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE admittance_user_tokens (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    user_id BIGINT NOT NULL,
    digest VARCHAR(64) NOT NULL UNIQUE,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    FOREIGN KEY (user_id) REFERENCES admittance_users (id) ON DELETE CASCADE
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE admittance_clusters (
    id VARCHAR(190) NOT NULL PRIMARY KEY,
    identifier VARCHAR(210) NOT NULL UNIQUE,
    provider VARCHAR(16) NOT NULL,
    creator_id BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    project_id VARCHAR(64),
    bcs_cluster_id VARCHAR(100),
    cluster_type VARCHAR(16),
    UNIQUE (project_id, bcs_cluster_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE admittance_permissions (
    cluster_id VARCHAR(190) NOT NULL,
    user_id BIGINT NOT NULL,
    permission VARCHAR(16) NOT NULL,
    PRIMARY KEY (cluster_id, user_id),
    FOREIGN KEY (cluster_id) REFERENCES admittance_clusters (id) ON DELETE CASCADE,
    FOREIGN KEY (user_id) REFERENCES admittance_users (id) ON DELETE CASCADE
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE admittance_register_tokens (
    cluster_id VARCHAR(190) NOT NULL PRIMARY KEY,
    digest VARCHAR(64) NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    used_at BIGINT,
    FOREIGN KEY (cluster_id) REFERENCES admittance_clusters (id) ON DELETE CASCADE
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

CREATE TABLE admittance_credentials (
    cluster_id VARCHAR(190) NOT NULL PRIMARY KEY,
    server_addresses TEXT NOT NULL,
    ca MEDIUMTEXT NOT NULL,
    sealed_token TEXT NOT NULL,
    cluster_domain TEXT NOT NULL,
    reported_at BIGINT NOT NULL,
    FOREIGN KEY (cluster_id) REFERENCES admittance_clusters (id) ON DELETE CASCADE
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
