//! The credentials that agents report for their clusters.

use std::{
    fmt::Display,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use admittance_net::{bearer::TokenDigest, listener::host_address};
use http::Uri;
use ipnet::IpNet;
use sqlx::query;

use super::{
    Accounts, AccountsError, ClusterCredentials, RegisteredCluster, Secret,
    database::{DatabaseTransaction, now, seconds},
    error::violation_error,
    rows::digest_text,
};

/// The minimum time between two reports of changed credentials for one cluster.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// The maximum number of API server addresses in a report. The gateway regularly checks each of them.
const MAX_ADDRESSES: usize = 16;
/// The longest address of an API server in a report, in bytes. With a port added, it must fit into a frame of a tunnel.
const LONGEST_ADDRESS: usize = 92;
/// The maximum total size of all API server addresses in a report, in bytes.
const LONGEST_ADDRESSES: usize = 2048;
const LONGEST_CA: usize = 64 * 1024;
const LONGEST_TOKEN: usize = 8 * 1024;
const LONGEST_DOMAIN: usize = 253;

#[derive(Clone, Debug)]
pub struct AgentReport {
    /// The addresses of the cluster's API servers, each `https://{host}:{port}`, separated by `;`.
    pub server_addresses: String,
    /// The CAs that sign the certificates of the cluster's API servers, as PEM.
    pub ca: String,
    pub user_token: Secret,
    pub cluster_domain: String,
}

impl Accounts {
    /// Checks the register token of an agent, and records its first use.
    pub async fn use_register_token(
        &self,
        cluster_id: &str,
        register_token: &[u8],
    ) -> Result<Arc<RegisteredCluster>, AccountsError> {
        let directory = self.directory()?;
        let cluster = directory.authenticate_agent(cluster_id, register_token)?;
        let cluster_id = cluster.id.as_str();
        let is_new = |token: &super::RegisterToken| token.used_at.is_none();
        if cluster.register_token.as_ref().is_some_and(is_new) {
            let mut change = self.0.database.begin_change().await?;
            // The register token may have been replaced since it was checked above. So the statement compares the
            // digest again, and changes nothing if it is a different one.
            query("UPDATE admittance_register_tokens SET used_at = ? WHERE cluster_id = ? AND digest = ?")
                .bind(seconds(now()))
                .bind(cluster_id.to_owned())
                .bind(digest_text(TokenDigest::of_token(register_token)))
                .execute(&mut *change)
                .await?;
            let actor = format!("agent of {cluster_id}");
            self.commit(change, &actor, "use register token", cluster_id).await?;
        }
        let directory = self.directory()?;
        Ok(directory.authenticate_agent(cluster_id, register_token)?.clone())
    }

    /// Stores the credentials that an agent reports for its cluster, unless equal credentials are stored.
    pub async fn report(
        &self,
        cluster_id: &str,
        register_token: &[u8],
        report: AgentReport,
    ) -> Result<(), AccountsError> {
        self.directory()?.authenticate_agent(cluster_id, register_token)?;
        let reported = self.reachable_credentials(report)?;
        let cluster = self.use_register_token(cluster_id, register_token).await?;
        let cluster_id = cluster.id.as_str();
        let is_unchanged = cluster.credentials.as_ref().is_some_and(|credentials| {
            let reported_at = credentials.reported_at;
            **credentials
                == ClusterCredentials {
                    reported_at,
                    ..reported.clone()
                }
        });
        if is_unchanged {
            return Ok(());
        }
        self.limit_reports(cluster_id)?;
        let mut change = self.0.database.begin_change().await?;
        query("DELETE FROM admittance_credentials WHERE cluster_id = ?")
            .bind(cluster_id.to_owned())
            .execute(&mut *change)
            .await?;
        self.insert_credentials(&mut change, cluster_id, &reported).await?;
        let actor = format!("agent of {cluster_id}");
        self.commit(change, &actor, "report credentials", cluster_id).await
    }

    pub(super) async fn insert_credentials(
        &self,
        change: &mut DatabaseTransaction,
        cluster_id: &str,
        credentials: &ClusterCredentials,
    ) -> Result<(), AccountsError> {
        let sealed = self.0.keys.seal(&credentials.user_token, cluster_id);
        query(
            "INSERT INTO admittance_credentials \
             (cluster_id, server_addresses, ca, sealed_token, cluster_domain, reported_at) \
             VALUES (?, ?, ?, ?, ?, ?)",
        )
        .bind(cluster_id.to_owned())
        .bind(credentials.servers().collect::<Vec<_>>().join(";"))
        .bind(credentials.ca.clone())
        .bind(sealed.map_err(AccountsError::Unavailable)?)
        .bind(credentials.cluster_domain.clone())
        .bind(seconds(credentials.reported_at))
        .execute(&mut **change)
        .await
        .map_err(violation_error("report of the cluster", "cluster", cluster_id))?;
        Ok(())
    }

    /// Limits how often a cluster reports changes, because every gateway reads the whole database after a change.
    fn limit_reports(&self, cluster_id: &str) -> Result<(), AccountsError> {
        let mut reports = self.0.reports.lock();
        let now = Instant::now();
        reports.retain(|_, last| now.duration_since(*last) < REPORT_INTERVAL);
        if reports.contains_key(cluster_id) {
            return Err(AccountsError::TooSoon(REPORT_INTERVAL));
        }
        reports.insert(cluster_id.to_owned(), now);
        Ok(())
    }

    pub(crate) fn may_connect(&self, ip: IpAddr) -> bool {
        !is_local(ip) || is_listed(ip, &self.0.local_servers)
    }

    /// Checks the credentials in the report of an agent, and returns them. It is an error if the gateway must not
    /// connect directly to one of the reported addresses.
    pub(super) fn reachable_credentials(&self, report: AgentReport) -> Result<ClusterCredentials, AccountsError> {
        let credentials = report.credentials()?;
        let local = &self.0.local_servers;
        let refused = credentials
            .server_addresses
            .iter()
            .find_map(|uri| address_refusal(uri, local));
        refused.map_or(Ok(credentials), Err)
    }
}

impl AgentReport {
    pub(crate) fn credentials(self) -> Result<ClusterCredentials, AccountsError> {
        self.check_fields()?;
        let addresses = self.server_addresses.split(';').filter(|text| !text.is_empty());
        let mut server_addresses = Vec::new();
        for address in addresses.map(parse_address) {
            let address = address?;
            if !server_addresses.contains(&address) {
                server_addresses.push(address);
            }
        }
        let count = server_addresses.len();
        if count == 0 {
            let message = "server_addresses is empty: send https://10.0.0.1:6443";
            return Err(AccountsError::Invalid(message.to_owned()));
        }
        if count > MAX_ADDRESSES {
            return Err(AccountsError::Invalid(format!(
                "server_addresses has {count} addresses, and at most {MAX_ADDRESSES} are allowed"
            )));
        }
        Ok(ClusterCredentials {
            server_addresses,
            ca: self.ca,
            user_token: self.user_token,
            cluster_domain: self.cluster_domain,
            reported_at: now(),
        })
    }

    fn check_fields(&self) -> Result<(), AccountsError> {
        let too_long = [
            ("server_addresses", self.server_addresses.len(), LONGEST_ADDRESSES),
            ("cacert_data", self.ca.len(), LONGEST_CA),
            ("user_token", self.user_token.0.len(), LONGEST_TOKEN),
            ("cluster_domain", self.cluster_domain.len(), LONGEST_DOMAIN),
        ]
        .into_iter()
        .find(|(_, length, max_length)| length > max_length);
        if let Some((field, length, max_length)) = too_long {
            return Err(AccountsError::Invalid(format!(
                "{field} has {length} bytes, and at most {max_length} are allowed"
            )));
        }
        let token = &self.user_token.0;
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(AccountsError::Invalid(
                "user_token is not the token of a service account".to_owned(),
            ));
        }
        if !self.ca.contains("-----BEGIN CERTIFICATE-----") {
            return Err(AccountsError::Invalid(
                "cacert_data has no certificate as PEM".to_owned(),
            ));
        }
        Ok(())
    }
}

fn invalid_address(address: impl Display, reason: &str) -> AccountsError {
    AccountsError::Invalid(format!("server_addresses: `{address}` {reason}"))
}

fn parse_address(text: &str) -> Result<Uri, AccountsError> {
    let uri: Uri = text
        .parse()
        .map_err(|_| invalid_address(text, "is not an address: send https://10.0.0.1:6443"))?;
    let is_bare = uri.scheme_str() == Some("https") && uri.path() == "/" && uri.query().is_none();
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    if !is_bare || authority.contains('@') || uri.host().is_none_or(str::is_empty) {
        return Err(invalid_address(
            text,
            "is not https, a host and a port: send https://10.0.0.1:6443",
        ));
    }
    if authority.len() > LONGEST_ADDRESS {
        let reason = format!("has more than {LONGEST_ADDRESS} bytes: send an IP address");
        return Err(invalid_address(text, &reason));
    }
    Ok(uri)
}

/// Returns why the gateway must not connect to an address without a tunnel, or `None` if it may.
fn address_refusal(uri: &Uri, local: &[IpNet]) -> Option<AccountsError> {
    let host = uri.host().unwrap_or_default();
    match host_address(host) {
        Some(ip) if is_local(ip) && !is_listed(ip, local) => Some(invalid_address(
            uri,
            "is an address of the gateway's own machine or link: list it in `accounts.localServers` if an API \
             server is there",
        )),
        None if host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost") => {
            Some(invalid_address(uri, "is the gateway's own machine: send an IP address"))
        }
        _ => None,
    }
}

fn is_listed(ip: IpAddr, networks: &[IpNet]) -> bool {
    networks.iter().any(|network| network.contains(&ip.to_canonical()))
}

fn is_local(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            ip.is_loopback() || ip.is_link_local() || ip.is_unspecified() || ip.is_broadcast() || ip.is_multicast()
        }
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unicast_link_local() || ip.is_unspecified() || ip.is_multicast(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn reported_addresses_must_be_valid_and_not_local() {
        let local = ["127.0.0.1/32".parse().unwrap()];
        for (text, is_valid, is_valid_if_listed) in [
            ("https://10.0.0.1:6443", true, true),
            ("https://10.0.0.1:6443/", true, true),
            ("https://[2001:db8::1]:6443", true, true),
            ("https://api.example.com", true, true),
            ("https://127.0.0.1:6443", false, true),
            ("https://127.0.0.2:6443", false, false),
            ("https://[::ffff:127.0.0.1]:6443", false, true),
            ("https://[::1]:6443", false, false),
            ("https://169.254.169.254", false, false),
            ("https://[fe80::1]:6443", false, false),
            ("https://0.0.0.0:6443", false, false),
            ("https://localhost:6443", false, false),
            ("https://a.LOCALHOST:6443", false, false),
            ("http://10.0.0.1:6443", false, false),
            ("https://user@10.0.0.1:6443", false, false),
            ("https://10.0.0.1:6443/api", false, false),
            ("10.0.0.1:6443", false, false),
            ("", false, false),
        ] {
            let is_allowed = |local: &[IpNet]| parse_address(text).is_ok_and(|uri| address_refusal(&uri, local).is_none());
            assert_eq!(is_allowed(&[]), is_valid, "{text}");
            assert_eq!(is_allowed(&local), is_valid_if_listed, "{text}");
        }
    }
}
