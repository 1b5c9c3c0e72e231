-- As in sqlite/0002_import.sql.
ALTER TABLE admittance_user_tokens ADD COLUMN sealed_value TEXT;

CREATE TABLE admittance_imported (
    kind VARCHAR(16) NOT NULL,
    source VARCHAR(190) NOT NULL,
    PRIMARY KEY (kind, source)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
