-- The token that `POST /rest/users/{id}/tokens` returns whenever it is called, sealed with a key of `keyFile`. NULL for all
-- other tokens, which are shown once.
ALTER TABLE admittance_user_tokens ADD COLUMN sealed_value TEXT;

-- The rows of bcs-api that an import has dealt with, so that another import restores nothing that was deleted here.
CREATE TABLE admittance_imported (
    kind TEXT NOT NULL,
    source TEXT NOT NULL,
    PRIMARY KEY (kind, source)
) STRICT;
