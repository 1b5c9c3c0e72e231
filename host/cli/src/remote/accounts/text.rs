//! Writes users, clusters and their tokens as text.

use admittance_gateway::admin::{ClusterEntry, ImportedAccounts, IssuedToken, Reencrypted, TokenEntry, UserEntry};

use crate::{
    human,
    output::sanitize_line,
    table::{TableCell, TextTable},
};

pub(super) fn users_table(users: &[UserEntry]) -> String {
    let mut table = TextTable::new(["ID", "NAME", "SUPER USER", "GROUPS", "TOKENS", "CREATED"]);
    for user in users {
        table.push_row([
            TableCell::number(user.id),
            TableCell::text(&user.name),
            TableCell::text(if user.super_user { "yes" } else { "" }),
            TableCell::text(user.groups.join(" ")),
            TableCell::number(user.tokens.len()),
            TableCell::text(human::timestamp(user.created_at)),
        ]);
    }
    table.text()
}

pub(super) fn tokens_table(tokens: &[TokenEntry]) -> String {
    let mut table = TextTable::new(["ID", "CREATED", "EXPIRES"]);
    for token in tokens {
        table.push_row([
            TableCell::number(token.id),
            TableCell::text(human::timestamp(token.created_at)),
            TableCell::text(human::timestamp(token.expires_at)),
        ]);
    }
    table.text()
}

/// Writes a new token and nothing else, so that the output can be redirected to a file.
pub(super) fn issued_token_text(token: &IssuedToken) -> String {
    format!("{}\n", sanitize_line(&token.token))
}

pub(super) fn clusters_table(clusters: &[ClusterEntry]) -> String {
    let mut table = TextTable::new(["ID", "IDENTIFIER", "CREATOR", "PROJECT", "SERVERS", "REPORTED"]);
    for cluster in clusters {
        let project = cluster.bcs.as_ref().map(|bcs| bcs.project_id.as_str());
        table.push_row([
            TableCell::text(&cluster.id),
            TableCell::text(&cluster.identifier),
            TableCell::text(cluster.creator.as_deref().unwrap_or_default()),
            TableCell::text(project.unwrap_or_default()),
            TableCell::text(cluster.servers.join(" ")),
            TableCell::text(cluster.reported_at.map(human::timestamp).unwrap_or_default()),
        ]);
    }
    table.text()
}

pub(super) fn register_tokens_table(clusters: &[ClusterEntry]) -> String {
    let mut table = TextTable::new(["CLUSTER", "CREATED", "FIRST USE UNTIL", "USED"]);
    for cluster in clusters {
        let Some(token) = &cluster.register_token else {
            continue;
        };
        table.push_row([
            TableCell::text(&cluster.id),
            TableCell::text(human::timestamp(token.created_at)),
            TableCell::text(human::timestamp(token.expires_at)),
            TableCell::text(token.used_at.map(human::timestamp).unwrap_or_default()),
        ]);
    }
    table.text()
}

pub(super) fn permissions_table(clusters: &[ClusterEntry]) -> String {
    let mut table = TextTable::new(["CLUSTER", "USER", "PERMISSION"]);
    for cluster in clusters {
        for granted in &cluster.permissions {
            table.push_row([
                TableCell::text(&cluster.id),
                TableCell::text(&granted.user),
                TableCell::text(&granted.permission),
            ]);
        }
    }
    table.text()
}

pub(super) fn reencryption_text(reencryption: &Reencrypted) -> String {
    let mut text = format!(
        "encrypted the credentials of {} and {} of users\n",
        human::count(reencryption.tokens, "cluster"),
        human::count(reencryption.user_tokens, "token")
    );
    for reason in &reencryption.skipped {
        text += &format!("not encrypted again: {}\n", sanitize_line(reason));
    }
    text
}

pub(super) fn import_text(import: &ImportedAccounts) -> String {
    let counts = [
        (import.users, "user"),
        (import.tokens, "token"),
        (import.clusters, "cluster"),
        (import.credentials, "credential"),
        (import.register_tokens, "register token"),
        (import.permissions, "permission"),
    ]
    .map(|(number, noun)| human::count(number, noun));
    let mut text = format!("copied {}\n", counts.join(", "));
    for name in &import.replaced {
        text += &format!("replaced: {}\n", sanitize_line(name));
    }
    for reason in &import.skipped {
        text += &format!("not copied: {}\n", sanitize_line(reason));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use admittance::Moment;
    use admittance_gateway::admin::{PermissionEntry, RegisterTokenEntry};

    use super::*;
    use crate::table::strip_styles;

    const START: Moment = Moment(SystemTime::UNIX_EPOCH);

    fn sample_cluster() -> ClusterEntry {
        ClusterEntry {
            id: "plain-dev".to_owned(),
            identifier: "plain-dev-x".to_owned(),
            provider: "plain".to_owned(),
            creator: None,
            created_at: START,
            bcs: None,
            servers: vec!["https://10.0.0.1:6443".to_owned()],
            reported_at: Some(START),
            register_token: Some(RegisterTokenEntry {
                created_at: START,
                expires_at: START,
                used_at: None,
            }),
            permissions: vec![PermissionEntry {
                user: "plain:alice".to_owned(),
                permission: "Read".to_owned(),
            }],
        }
    }

    #[test]
    fn tables_show_clusters_tokens_and_permissions() {
        let cluster = [sample_cluster()];
        assert_eq!(
            strip_styles(&clusters_table(&cluster)),
            "ID         IDENTIFIER   CREATOR  PROJECT  SERVERS                REPORTED\n\
             plain-dev  plain-dev-x  -        -        https://10.0.0.1:6443  1970-01-01T00:00:00Z\n"
        );
        assert_eq!(
            strip_styles(&register_tokens_table(&cluster)),
            "CLUSTER    CREATED               FIRST USE UNTIL       USED\n\
             plain-dev  1970-01-01T00:00:00Z  1970-01-01T00:00:00Z  -\n"
        );
        assert_eq!(
            strip_styles(&permissions_table(&cluster)),
            "CLUSTER    USER         PERMISSION\nplain-dev  plain:alice  Read\n"
        );
    }

    #[test]
    fn a_new_token_is_printed_without_other_text() {
        let token = IssuedToken {
            id: Some(1),
            token: "abc".to_owned(),
            expires_at: START,
        };
        assert_eq!(issued_token_text(&token), "abc\n");
    }
}
