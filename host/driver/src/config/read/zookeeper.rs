use std::{ops::RangeInclusive, path::Path, time::Duration};

use admittance_bcs::zookeeper::{
    EnsembleAddress, EnsembleConfig, EnsembleServer, NodePath, ZooKeeperConfig, ZooKeeperDigest,
};
use admittance_definitions::document::{Fields, Node, readers};
use admittance_watch::file::{self, SecretError};

/// The session timeouts that the configuration may contain. The servers of an ensemble restrict them further.
const SESSION_TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(600);
const MAX_PASSWORD_LENGTH: usize = 4096;

/// The ZooKeeper ensembles that have a section in the configuration file. An invalid section counts too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConfiguredEnsembles {
    has_cluster: bool,
    has_any: bool,
}

impl ConfiguredEnsembles {
    pub(super) fn read(root: &Fields<'_>) -> Self {
        let zookeeper = root.node().json().get("zookeeper").cloned().unwrap_or_default();
        let has_ensemble = |name| zookeeper.get(name).is_some_and(|ensemble| !ensemble.is_null());
        Self {
            has_cluster: has_ensemble("cluster"),
            has_any: has_ensemble("cluster") || has_ensemble("service"),
        }
    }

    pub(super) fn has_cluster(self) -> bool {
        self.has_cluster
    }

    pub(crate) fn need_cluster(self, node: &Node<'_>) {
        if !self.has_cluster {
            node.add_mistake(
                "`zookeeper.cluster` is not configured",
                "write `zookeeper: { cluster: { servers: [ \"127.0.0.1:2181\" ] } }`",
            );
        }
    }

    pub(crate) fn need_any(self, node: &Node<'_>) {
        if !self.has_any {
            node.add_mistake(
                "`zookeeper` is not configured",
                "write `zookeeper: { service: { servers: [ \"127.0.0.1:2181\" ] } }`",
            );
        }
    }
}

pub(crate) fn read_path(node: &Node<'_>, default: &str) -> Option<NodePath> {
    let mut fields = node.object()?;
    match fields.optional("path") {
        Some(node) => node.parse(),
        None => default.parse().ok(),
    }
}

pub(super) fn zookeeper(node: &Node<'_>) -> Option<ZooKeeperConfig> {
    let mut fields = node.object()?;
    Some(ZooKeeperConfig {
        cluster: fields.get_optional("cluster", read_ensemble),
        service: fields.get_optional("service", read_ensemble),
    })
}

fn read_ensemble(node: &Node<'_>) -> Option<EnsembleConfig> {
    let fix = "write [ \"10.0.0.1:2181\" ]";
    let mut fields = node.object()?;
    let servers = readers::filled_list_of(fix, Node::parse::<EnsembleServer>);
    let servers = fields.get_required("servers", fix, servers);
    let chroot = fields.get_optional("chroot", readers::text);
    let chroot_node = fields.optional("chroot");
    let session_timeout = fields.get_optional("sessionTimeout", readers::duration(SESSION_TIMEOUTS));
    let digest = fields.get_optional("digest", read_digest);
    let servers = EnsembleAddress::new(servers?, chroot);
    let mut config = EnsembleConfig::new(chroot_node.as_ref().unwrap_or(node).accept(servers)?);
    config.session_timeout = session_timeout.unwrap_or(config.session_timeout);
    config.digest = digest;
    Some(config)
}

fn read_digest(node: &Node<'_>) -> Option<ZooKeeperDigest> {
    let mut fields = node.object()?;
    let fix = "name the user; `\"\"` is the one without a name";
    let user = fields.get_required("user", fix, |node| node.accept(parse_user(node.string()?)));
    // User and password may both be empty, because bcs-mesos-driver can be built with empty ones.
    let may_be_empty = user.as_ref().is_some_and(String::is_empty);
    let password = readers::file_with(|path| read_password(path, may_be_empty));
    let password = if may_be_empty {
        Some(fields.get("passwordFile", String::new(), password))
    } else {
        fields.get_required("passwordFile", "name the file that holds the password", password)
    };
    Some(ZooKeeperDigest::new(user?, password?))
}

fn parse_user(text: &str) -> Result<String, String> {
    if text.contains(':') {
        Err(format!("{text:?} is not a valid user: a name has no colon"))
    } else {
        Ok(text.to_owned())
    }
}

pub(crate) fn read_password(path: &Path, may_be_empty: bool) -> Result<String, String> {
    let name = path.display();
    let max_size = u64::try_from(MAX_PASSWORD_LENGTH).unwrap_or(u64::MAX);
    let secret = file::read_secret_to_string(path, max_size).map_err(|error| match error {
        SecretError::Unreadable(error) => format!("{name} cannot be read: {error}"),
        SecretError::WorldReadable => {
            format!("the file is world-readable: chmod o-r {name}")
        }
    })?;
    // A line break at the end of the file is not part of the password, but spaces at the end are.
    let text = secret.trim_end_matches(['\r', '\n']);
    if (text.is_empty() && !may_be_empty) || text.len() + 2 > MAX_PASSWORD_LENGTH || text.contains(['\r', '\n']) {
        return Err(format!("{name} contains no password: write it on one line"));
    }
    Ok(text.to_owned())
}
