//! `admittance agent`: connects a Kubernetes cluster to a gateway.

mod port;

use std::{env, net::SocketAddr, path::PathBuf, time::Duration};

use admittance_driver::LogFormat;
use admittance_gateway::{
    accounts::Secret,
    tunnel::agent::{self, AgentConfig, AgentCredentials, AgentStatus, ApiServers},
};
use admittance_net::tls::{self, ClientTls, Trust};
use clap::Args;
use http::Uri;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use self::port::AgentPort;
use crate::{arguments::word, files, logging, remote::ServerUrl};

/// Connect the Kubernetes cluster in which this program runs to a gateway: send the cluster's credentials to the
/// gateway, and open a tunnel.
///
/// `admittance kubernetes manifests --agent` prints the manifests that install the agent. The gateway gets the token of
/// the agent's service account. This account must be allowed to impersonate users and groups, and nothing else.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance agent --gateway https://gateway.example.com --cluster-id plain-dev --register-token-file token")]
pub(crate) struct Arguments {
    /// The URL of the gateway.
    #[arg(long, visible_alias = "bke-address", value_name = "URL", env = "ADMITTANCE_GATEWAY")]
    gateway: ServerUrl,
    /// The ID of the cluster at the gateway.
    #[arg(long, value_name = "ID")]
    cluster_id: String,
    /// A file with the register token of the cluster; the environment variable REGISTER_TOKEN may contain the token
    /// itself.
    #[arg(long, value_name = "FILE")]
    register_token_file: Option<PathBuf>,
    /// Trust the CAs in this PEM file for the gateway, instead of the CAs of the system; the environment variable
    /// SERVER_CERT may contain the PEM itself.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// A URL of the cluster's API server. If there is a tunnel, the gateway connects to this URL through the agent, and
    /// otherwise directly. May be given more than once, or with `;` between URLs [default: the endpoints of the Service
    /// `kubernetes`, which the agent lists again after each --period].
    #[arg(
        long,
        visible_alias = "external-proxy-addresses",
        value_name = "URL",
        value_delimiter = ';',
        value_parser = server
    )]
    api_server: Vec<Uri>,
    /// The directory with `token` and `ca.crt` of the service account.
    #[arg(
        long,
        value_name = "DIRECTORY",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount"
    )]
    service_account: PathBuf,
    /// Report the token and the CA in the current context of this kubeconfig, instead of those of the service account.
    #[arg(long, value_name = "FILE", conflicts_with = "service_account")]
    kubeconfig: Option<PathBuf>,
    /// This option is refused: if the gateway's certificate were not verified, anyone between agent and gateway could
    /// take the cluster's token.
    #[arg(long = "insecureSkipVerify", num_args = 0..=1, default_missing_value = "true")]
    insecure_skip_verify: Option<bool>,
    /// Serve /healthz, /readyz and /metrics on this address [default: none].
    #[arg(long, value_name = "HOST:PORT", value_parser = crate::arguments::socket_address, env = "ADMITTANCE_LISTEN_ADDR")]
    listen_addr: Option<SocketAddr>,
    /// The interval at which the agent reads the cluster's credentials and reports them: a duration, or a number of
    /// seconds.
    #[arg(long, visible_alias = "periodsync", value_name = "DURATION", default_value = "60s", value_parser = period)]
    period: Duration,
    /// Open no tunnel, so that the gateway connects to the addresses of --api-server itself.
    #[arg(long)]
    no_tunnel: bool,
    /// The level of log lines, or a filter (`info,admittance=debug`).
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "ADMITTANCE_LOG")]
    log: String,
    /// The format of log lines: auto means pretty on a terminal, and json elsewhere.
    #[arg(long, value_name = "FORMAT", default_value = "auto", value_parser = word::<LogFormat>(), env = "ADMITTANCE_LOG_FORMAT")]
    log_format: LogFormat,
}

pub(crate) fn run(arguments: &Arguments) -> crate::Result<()> {
    logging::start(&arguments.log, arguments.log_format)?;
    let config = arguments.agent_config()?;
    let needs_tunnel = config.has_tunnel;
    crate::block_on(async {
        let mut terminated = signal(SignalKind::terminate())?;
        let mut interrupted = signal(SignalKind::interrupt())?;
        let (sender, status) = watch::channel(AgentStatus::default());
        let port = match arguments.listen_addr {
            Some(address) => Some(AgentPort::bind(address, status, needs_tunnel).await?),
            None => None,
        };
        tokio::select! {
            () = agent::run(config, sender) => {}
            () = AgentPort::serve(port) => {}
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
        tracing::info!("stopped");
        Ok(())
    })?
}

impl Arguments {
    fn agent_config(&self) -> crate::Result<AgentConfig> {
        self.gateway.check_may_get_token()?;
        if self.insecure_skip_verify == Some(true) {
            return Err(
                "--insecureSkipVerify: without verification, anybody between this agent and the gateway could \
                take the token of the cluster; name the CA of the gateway with --ca or SERVER_CERT"
                    .into(),
            );
        }
        let register_token = match &self.register_token_file {
            Some(path) => files::read(path)?,
            None => env::var("REGISTER_TOKEN")
                .map_err(|_| "no register token: write `--register-token-file FILE`, or set REGISTER_TOKEN")?,
        };
        let servers = match self.api_server.as_slice() {
            [] if self.kubeconfig.is_some() => ApiServers::Endpoints(None),
            [] => ApiServers::Endpoints(Some(api_server_of_pod()?)),
            servers => ApiServers::Listed(servers.to_vec()),
        };
        let credentials = match &self.kubeconfig {
            Some(path) => AgentCredentials::Kubeconfig(path.clone()),
            None => AgentCredentials::ServiceAccount {
                token_file: self.service_account.join("token"),
                ca_file: self.service_account.join("ca.crt"),
            },
        };
        Ok(AgentConfig {
            gateway: self.gateway.to_string().parse()?,
            tls: self.client_tls()?,
            cluster: self.cluster_id.clone(),
            register_token: Secret(register_token.trim().to_owned()),
            servers,
            credentials,
            report_period: self.period,
            has_tunnel: !self.no_tunnel,
        })
    }

    fn client_tls(&self) -> crate::Result<ClientTls> {
        let pem = env::var("SERVER_CERT").ok().filter(|pem| !pem.trim().is_empty());
        match (&self.ca, pem) {
            (None, Some(pem)) => {
                let certificates =
                    tls::certificates_in(pem.as_bytes()).map_err(|error| format!("SERVER_CERT: {error}"))?;
                Ok(tls::client_config(Trust::Only(&certificates), None)?.into())
            }
            (ca, _) => Ok(ClientTls::of_files(ca.clone(), None)?),
        }
    }
}

fn api_server_of_pod() -> crate::Result<Uri> {
    let variable = |name: &str| {
        env::var(name)
            .map_err(|_| format!("{name} is not set, so this is not a Pod: name the API server with --api-server"))
    };
    let (host, port) = (
        variable("KUBERNETES_SERVICE_HOST")?,
        variable("KUBERNETES_SERVICE_PORT")?,
    );
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    Ok(server(&format!("https://{host}:{port}"))?)
}

fn server(text: &str) -> Result<Uri, String> {
    let server: admittance_net::upstream::UpstreamServer = text.parse().map_err(|error| format!("{error}"))?;
    if !server.is_tls() {
        return Err("write https://, a host and a port: https://10.0.0.1:6443".to_owned());
    }
    text.parse().map_err(|error| format!("{error}"))
}

fn period(text: &str) -> Result<Duration, String> {
    let period = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => crate::arguments::duration(text)?,
    };
    if period.is_zero() {
        return Err("write at least a second, such as 60s".to_owned());
    }
    Ok(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reporting_periods_must_be_positive_and_api_servers_must_use_tls() {
        for (text, expected) in [
            ("60", Some(60)),
            ("90s", Some(90)),
            ("2m", Some(120)),
            ("0", None),
            ("x", None),
        ] {
            assert_eq!(period(text).ok(), expected.map(Duration::from_secs), "{text}");
        }
        for (text, is_valid) in [
            ("https://10.0.0.1:6443", true),
            ("https://[fd00::1]:443", true),
            ("http://10.0.0.1:6443", false),
            ("10.0.0.1:6443", false),
            ("https://a/b", false),
        ] {
            assert_eq!(server(text).is_ok(), is_valid, "{text}");
        }
    }
}
