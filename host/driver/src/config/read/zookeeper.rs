use std::{ops::RangeInclusive, path::Path, time::Duration};

use admittance_bcs::zookeeper::{Digest, EnsembleConfig, NodePath, Server, Servers, ZooKeeperConfig};
use admittance_definitions::{
    Mistakes,
    document::{Fields, Node},
};
use admittance_watch::file::{self, SecretError};

use super::{good, if_there, parsed_list};

/// The servers of an ensemble have their own bounds within these.
const SESSION_TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(600);
/// In bytes. Passwords are shorter.
const LONGEST_PASSWORD: usize = 4096;

/// Which ensembles are configured, valid or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ensembles {
    cluster: bool,
    any: bool,
}

impl Ensembles {
    pub(super) fn of(root: &Fields<'_>) -> Self {
        let zookeeper = root.node().json().get("zookeeper").cloned().unwrap_or_default();
        let has = |name| zookeeper.get(name).is_some_and(|ensemble| !ensemble.is_null());
        Self {
            cluster: has("cluster"),
            any: has("cluster") || has("service"),
        }
    }

    /// `node` needs the cluster's ensemble.
    pub(super) fn need_cluster(self, node: &Node<'_>, mistakes: &mut Mistakes) -> Option<()> {
        if !self.cluster {
            node.wrong(
                "`zookeeper.cluster` is not configured",
                "write `zookeeper: { cluster: { servers: [ \"127.0.0.1:2181\" ] } }`",
                mistakes,
            );
        }
        self.cluster.then_some(())
    }

    /// `node` needs an ensemble, of either kind.
    pub(super) fn need_any(self, node: &Node<'_>, mistakes: &mut Mistakes) -> Option<()> {
        if !self.any {
            node.wrong(
                "`zookeeper` is not configured",
                "write `zookeeper: { service: { servers: [ \"127.0.0.1:2181\" ] } }`",
                mistakes,
            );
        }
        self.any.then_some(())
    }
}

/// The path of a node, in the field `path`.
pub(super) fn path(fields: &mut Fields<'_>, default: &str, mistakes: &mut Mistakes) -> Option<NodePath> {
    match fields.optional("path") {
        Some(node) => node.parse(mistakes),
        None => default.parse().ok(),
    }
}

pub(super) fn zookeeper(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<ZooKeeperConfig> {
    let mut fields = node.object(mistakes)?;
    let cluster = if_there(fields.optional("cluster"), mistakes, ensemble);
    let service = if_there(fields.optional("service"), mistakes, ensemble);
    fields.finish(mistakes);
    Some(ZooKeeperConfig {
        cluster: cluster?,
        service: service?,
    })
}

fn ensemble(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<EnsembleConfig> {
    let fix = "write [ \"10.0.0.1:2181\" ]";
    let mut fields = node.object(mistakes)?;
    let servers = fields.required("servers", fix, mistakes).and_then(|node| {
        node.filled_list(fix, mistakes)?;
        parsed_list::<Server>(&node, mistakes)
    });
    let chroot = if_there(fields.optional("chroot"), mistakes, |node, mistakes| {
        node.text(mistakes).map(|path| (path.to_owned(), node.clone()))
    });
    let session_timeout = if_there(fields.optional("sessionTimeout"), mistakes, |node, mistakes| {
        node.duration(SESSION_TIMEOUTS, mistakes)
    });
    let digest = if_there(fields.optional("digest"), mistakes, digest);
    fields.finish(mistakes);
    let (servers, chroot) = (servers?, chroot?);
    let (root, at) = chroot.unzip();
    let servers = good(Servers::new(servers, root), at.as_ref().unwrap_or(node), mistakes)?;
    let mut config = EnsembleConfig::new(servers);
    config.session_timeout = session_timeout?.unwrap_or(config.session_timeout);
    config.digest = digest?;
    Some(config)
}

fn digest(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Digest> {
    let mut fields = node.object(mistakes)?;
    let user = fields
        .required(
            "user",
            "name the user; `\"\"` is the one without a name",
            mistakes,
        )
        .and_then(|node| good(user(node.string(mistakes)?), &node, mistakes));
    // The original was built without a user and a password, too.
    let may_be_empty = user.as_ref().is_some_and(String::is_empty);
    let password = match fields.optional("passwordFile") {
        Some(node) => node
            .file(mistakes)
            .and_then(|path| good(password(&path, may_be_empty), &node, mistakes)),
        None if may_be_empty => Some(String::new()),
        None => {
            fields.required("passwordFile", "name the file that holds the password", mistakes);
            None
        }
    };
    fields.finish(mistakes);
    Some(Digest::new(user?, password?))
}

/// Without a colon, because the password begins after the first one.
fn user(text: &str) -> Result<String, String> {
    match text.contains(':') {
        true => Err(format!("{text:?} is not a valid user: a name has no colon")),
        false => Ok(text.to_owned()),
    }
}

fn password(path: &Path, may_be_empty: bool) -> Result<String, String> {
    let shown = path.display();
    let most = u64::try_from(LONGEST_PASSWORD).unwrap_or(u64::MAX);
    let text = file::read_secret_to_string(path, most).map_err(|error| match error {
        SecretError::Unreadable(error) => format!("{shown} cannot be read: {error}"),
        SecretError::WorldReadable => {
            format!("the file is world-readable: chmod o-r {shown}")
        }
    })?;
    // A trailing newline is not part of the password; a space may be.
    let text = text.trim_end_matches(['\r', '\n']);
    if (text.is_empty() && !may_be_empty) || text.len() + 2 > LONGEST_PASSWORD || text.contains(['\r', '\n'])
    {
        return Err(format!("{shown} contains no password: write it on one line"));
    }
    Ok(text.to_owned())
}
