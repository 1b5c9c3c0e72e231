//! Lists the kinds of locations in which definitions can be stored. Each kind has a row in [`LOCATIONS`] and a module.

mod custom_resources;
mod files;
mod kubernetes;
mod zookeeper;

use std::{any::Any, fmt::Debug, path::Path, sync::Arc};

use admittance::{HostBuilder, NamespacedChains};
use admittance_admission::enumerated;
use admittance_bcs::zookeeper::NoEnsemble;
use admittance_definitions::{DefinitionStore, document::Node};
use admittance_fleet::PolicySystem;

pub use self::{
    custom_resources::CustomResources, files::DefinitionFiles, kubernetes::KubernetesResources,
    zookeeper::ZooKeeperNodes,
};
use crate::{Connections, FrontConfig, config::SectionContext};

/// A configured location where definitions are stored.
pub trait DefinitionLocation: Any + Debug + Send + Sync {
    /// Returns a name that identifies the location in messages, such as `zookeeper:/blueking/admissionwebhook`.
    fn name(&self) -> String;

    /// Returns the stores of the location, which read definitions through `connections`. A location that consists of
    /// files returns no stores, because the host itself reads files.
    fn stores(&self, connections: &Connections) -> Result<Vec<Arc<dyn DefinitionStore>>, LocationError>;

    fn path(&self) -> Option<&Path> {
        None
    }

    /// Returns whether all replicas with this front end read their definitions from one shared location. If they do, a
    /// change of the definitions goes live on all replicas together by default.
    fn is_shared(&self, _front: &dyn FrontConfig) -> bool {
        false
    }

    /// Returns the name of the Lease that the leader of the replicas holds; `None` if the location needs no leader.
    fn lease(&self) -> Option<&str> {
        None
    }

    /// Returns the modules, webhooks and grants that the chains of single namespaces in this location may use. `None`
    /// if the location has no such chains.
    fn namespaced_chains(&self) -> Option<&NamespacedChains> {
        None
    }

    /// Returns the policy systems, such as Kyverno, whose policies this location reads from the cluster.
    fn policies(&self) -> &[PolicySystem] {
        &[]
    }
}

/// The reason why the definitions of a location cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LocationError {
    #[error(transparent)]
    NoEnsemble(#[from] NoEnsemble),
    #[error("definitions: `cluster` is not configured")]
    NoCluster,
    #[error("definitions: {0}")]
    Path(&'static str),
}

/// Makes a host read the definitions of these locations.
pub fn with_definitions(
    mut builder: HostBuilder,
    locations: &[Arc<dyn DefinitionLocation>],
    connections: &Connections,
) -> Result<HostBuilder, LocationError> {
    for location in locations {
        if let Some(path) = location.path() {
            builder = builder.definitions(path);
        }
        if let Some(namespaced) = location.namespaced_chains() {
            builder = builder.namespaced_chains(namespaced.clone());
        }
        builder = builder.definition_stores(location.stores(connections)?);
    }
    Ok(builder)
}

#[derive(Clone, Copy)]
struct LocationRow {
    key: &'static str,
    read: fn(&Node<'_>, SectionContext<'_>) -> Option<Arc<dyn DefinitionLocation>>,
}

static LOCATIONS: [LocationRow; 3] = [kubernetes::ROW, zookeeper::ROW, custom_resources::ROW];

pub(crate) fn read_locations(
    node: &Node<'_>,
    sections: SectionContext<'_>,
) -> Option<Vec<Arc<dyn DefinitionLocation>>> {
    let mut locations: Vec<Arc<dyn DefinitionLocation>> = Vec::new();
    for entry in &node.list()? {
        let Some(location) = read_location(entry, sections) else {
            continue;
        };
        // A store must be listed only once, because each entry of the list would load all of its definitions.
        if location.path().is_none() && locations.iter().any(|other| other.name() == location.name()) {
            entry.add_mistake("this store is listed twice", "remove it");
        }
        locations.push(location);
    }
    Some(locations)
}

fn read_location(node: &Node<'_>, sections: SectionContext<'_>) -> Option<Arc<dyn DefinitionLocation>> {
    if !node.json().is_object() {
        return Some(Arc::new(DefinitionFiles(node.file_path()?)));
    }
    let mut fields = node.object()?;
    let present = fields.present_fields(&LOCATIONS.map(|row| row.key));
    let [(key, node)] = present.as_slice() else {
        let keys = enumerated(LOCATIONS.map(|row| format!("`{}: {{}}`", row.key)), "or");
        let fix = format!("write a path, {keys}");
        return node.reject("exactly one store of definitions is expected", fix);
    };
    let row = LOCATIONS.iter().find(|row| row.key == *key)?;
    (row.read)(node, sections)
}
