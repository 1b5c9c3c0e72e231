//! The kinds of hooks that a stage can define: their common trait, and one module for each.

pub(crate) mod cel;
pub(crate) mod client;
pub(crate) mod group;
pub(crate) mod mutators;
pub(crate) mod plugin;
pub(crate) mod rego;
pub(crate) mod webhook;

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fmt,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use admittance_admission::{
    Authorizer, ClusterKind, ClusterReader, FailureKind, Hook, NamespaceSource, Phase, PolicyHttp,
    WebhookTarget,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use self::{
    plugin::{PluginDefinition, PluginRole},
    webhook::WebhookDefinition,
};
use crate::document::Node;

/// A kind of hook: its definition and its preparation. No code outside of the kind's module depends on it.
pub trait HookKind: HookValue {
    /// Returns the plugins of the hook, in the order in which [`prepare`](Self::prepare) gets them. Default: none.
    fn plugins(&self) -> Vec<(PluginRole<'_>, &PluginDefinition)> {
        Vec::new()
    }

    /// Returns mutable references to the plugins of the hook.
    fn plugins_mut(&mut self) -> Vec<&mut PluginDefinition> {
        Vec::new()
    }

    /// Returns the server that receives the requests. Default: none.
    fn server(&self) -> Option<&WebhookTarget> {
        None
    }

    /// Returns warnings about valid settings that will probably fail, each with a fix. Default: none.
    fn warnings(&self) -> Vec<(String, &'static str)> {
        Vec::new()
    }

    /// Returns the kinds of objects in the cluster that the hook reads, without the kinds that are granted to its
    /// plugins. If expressions check users' permissions, [`ClusterKind::any_access`] is included. Default: none.
    fn reads(&self) -> BTreeSet<ClusterKind> {
        BTreeSet::new()
    }

    /// Returns the names and expressions of match conditions that belong to the hook, not to its stage. Default: none.
    fn conditions(&self) -> Vec<(&str, &str)> {
        Vec::new()
    }

    /// Returns whether this hook may refuse requests that its replacement `now` allows. Only differences that
    /// truncating a file can cause count: another module or URL, or other values in settings, do not. Default: whether
    /// the hooks differ.
    fn may_refuse_more_than(&self, now: &HookDefinition) -> bool {
        !self.equals(&**now)
    }

    /// Returns the field of a native stage that defines this hook, and its value; `None` if there is no such field.
    fn to_native(&self) -> Option<(&'static str, Json)>;

    /// Lists the parts of the hook that native stages cannot express, one sentence each. Default: none.
    fn without_native_form(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Lists the ways in which the native form behaves differently, one sentence each. Default: none.
    fn differences_of_native(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Returns whether `native`, which was read from this hook's native form, has all properties of this hook. Default:
    /// whether the two are equal.
    fn is_complete_in(&self, native: &HookDefinition) -> bool {
        self.equals(&**native)
    }

    /// Creates the hook that the stage calls.
    ///
    /// # Errors
    ///
    /// Fails if the hook cannot be created from these parts of the host.
    fn prepare(&self, given: HookContext<'_>) -> Result<PreparedHook, HookError>;
}

/// The methods of a [`HookKind`] that are implemented for every type.
pub trait HookValue: Any + fmt::Debug + Send + Sync {
    /// Clones the hook.
    fn boxed(&self) -> Box<dyn HookKind>;
    /// Returns whether the other hook has the same type and value.
    fn equals(&self, other: &dyn HookKind) -> bool;
}

impl<K: HookKind + Clone + PartialEq> HookValue for K {
    fn boxed(&self) -> Box<dyn HookKind> {
        Box::new(self.clone())
    }

    fn equals(&self, other: &dyn HookKind) -> bool {
        (other as &dyn Any).downcast_ref::<K>() == Some(self)
    }
}

/// A hook of any kind.
#[derive(Debug)]
pub struct HookDefinition(Box<dyn HookKind>);

impl HookDefinition {
    /// Returns the hook if it is of this kind.
    pub fn get<K: HookKind>(&self) -> Option<&K> {
        (&*self.0 as &dyn Any).downcast_ref()
    }

    /// Returns the hook mutably if it is of this kind.
    pub fn get_mut<K: HookKind>(&mut self) -> Option<&mut K> {
        (&mut *self.0 as &mut dyn Any).downcast_mut()
    }
}

impl<K: HookKind> From<K> for HookDefinition {
    fn from(hook: K) -> Self {
        Self(Box::new(hook))
    }
}

impl Deref for HookDefinition {
    type Target = dyn HookKind;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl DerefMut for HookDefinition {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.0
    }
}

impl Clone for HookDefinition {
    fn clone(&self) -> Self {
        Self(self.0.boxed())
    }
}

impl PartialEq for HookDefinition {
    fn eq(&self, other: &Self) -> bool {
        self.0.equals(&*other.0)
    }
}

/// Reads a hook from its field of a native stage. The argument of type `Phase` is the phase of the stage's chain.
pub(crate) type ReadHook = fn(&Node<'_>, Phase) -> Option<HookDefinition>;

/// The fields of a native stage that define its hook. A stage has exactly one of them.
pub(crate) const NATIVE_FIELDS: [(&str, ReadHook); 5] = [
    ("plugin", |node, _| Some(plugin::read(node)?.into())),
    ("webhook", |node, _| Some(webhook::read(node)?.into())),
    ("cel", |node, phase| Some(cel::read(node, phase)?.into())),
    ("rego", |node, _| Some(rego::read(node)?.into())),
    ("group", |node, _| Some(group::read(node)?.into())),
];

/// The parts of the host that a hook may use.
#[derive(derive_more::Debug)]
#[debug("HookContext {{ phase: {phase:?}, plugins: {plugins:?}, .. }}")]
pub struct HookContext<'a> {
    /// The phase of the hook's chain.
    pub phase: Phase,
    /// The loaded plugins of the hook.
    pub plugins: Vec<PreparedHook>,
    /// The authorizer for expressions that check permissions.
    pub authorizer: &'a Arc<dyn Authorizer>,
    /// The reader of the control plane, if there is one.
    pub cluster: Option<&'a Arc<dyn ClusterReader>>,
    /// The sender of requests for Kyverno's policies; `None` if the host sends no requests.
    pub http: Option<&'a PolicyHttp>,
    /// The source of the labels of namespaces.
    pub namespaces: &'a Arc<dyn NamespaceSource>,
    /// Creates a client for a webhook in a chain of this phase, and returns the client with the webhook's URL.
    pub connect: &'a ConnectWebhook<'a>,
}

/// The type of [`HookContext::connect`].
pub type ConnectWebhook<'a> =
    dyn Fn(&WebhookDefinition, Phase) -> Result<(Arc<dyn Hook>, String), HookError> + 'a;

/// The reason why a hook cannot be prepared.
pub type HookError = Box<dyn Error + Send + Sync>;

/// A prepared hook with its status.
#[derive(Clone, derive_more::Debug)]
#[debug("PreparedHook {{ status: {status:?}, .. }}")]
#[non_exhaustive]
pub struct PreparedHook {
    /// The hook that is called.
    pub hook: Arc<dyn Hook>,
    /// The description of the hook for the status and the console.
    pub status: HookStatus,
    /// The key of the hook's statistics. If it changes, the statistics restart from zero. Default: empty.
    pub identity: String,
    /// The failures that this kind of hook can have, in addition to the failures that every stage can have. Default:
    /// all failures.
    pub failures: &'static [FailureKind],
    /// Whether calls go to a server. Default: false.
    pub calls_server: bool,
}

impl PreparedHook {
    /// Creates a hook that may fail in any way.
    pub fn new(hook: Arc<dyn Hook>, status: HookStatus) -> Self {
        Self {
            hook,
            status,
            identity: String::new(),
            failures: &FailureKind::ALL,
            calls_server: false,
        }
    }
}

/// The status of a stage's hook. Each kind adds fields: a webhook `url`, CEL `expressions`, a group `expression`,
/// mutators `mutators`, a plugin the fields of `PluginStatus`, and an unavailable plugin `source` and `reason`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct HookStatus {
    /// The kind of hook: `plugin`, `webhook`, `cel`, `group`, `mutators`, `native` (code of the embedding program), or
    /// `unavailable` (a plugin whose module could not be fetched: each call fails as `unreachable`).
    #[serde(rename = "type")]
    pub kind: String,
    /// The hook in one line: a plugin's name, a webhook's URL, or an expression.
    #[serde(default)]
    pub summary: String,
    /// The plugins of a group, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub plugins: BTreeMap<String, HookStatus>,
    /// The additional fields of this kind of hook.
    #[serde(flatten)]
    pub facts: Map<String, Json>,
}

impl HookStatus {
    /// Creates the status of a hook of this kind.
    pub fn new(kind: &str, summary: impl Into<String>) -> Self {
        Self {
            kind: kind.to_owned(),
            summary: summary.into(),
            ..Self::default()
        }
    }

    /// Adds a field.
    pub fn with(mut self, name: &str, fact: impl Into<Json>) -> Self {
        self.facts.insert(name.to_owned(), fact.into());
        self
    }

    /// Returns the field `name` if it is text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.facts.get(name)?.as_str()
    }

    /// Iterates over the hook itself and, for a group, its plugins.
    pub fn parts(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.plugins.values())
    }
}
