//! Hooks as stages define them: the trait of all kinds of hooks, and a module for each kind.

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
    Authorizer, ClusterKind, ClusterReader, FailureKind, Hook, NamespaceSource, Phase, WebhookTarget,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use self::{
    plugin::{PluginDefinition, PluginRole},
    webhook::WebhookDefinition,
};
use crate::document::{Mistakes, Node};

/// A kind of hook: what a definition says about it, and what follows from that. Nothing else in the program depends on the
/// kind.
pub trait HookKind: HookValue {
    /// Its plugins, in the order in which [`prepare`](Self::prepare) gets them. Default: none.
    fn plugins(&self) -> Vec<(PluginRole<'_>, &PluginDefinition)> {
        Vec::new()
    }

    /// Its plugins, to change them.
    fn plugins_mut(&mut self) -> Vec<&mut PluginDefinition> {
        Vec::new()
    }

    /// The server that gets the requests. Default: none.
    fn server(&self) -> Option<&WebhookTarget> {
        None
    }

    /// Parts of it that are valid and will probably fail: what they are, and what to do. Default: none.
    fn warnings(&self) -> Vec<(String, &'static str)> {
        Vec::new()
    }

    /// The kinds of the cluster that are read for it, besides those that its plugins are granted; among them
    /// [`ClusterKind::any_access`] if its expressions ask what users may do. Default: none.
    fn reads(&self) -> BTreeSet<ClusterKind> {
        BTreeSet::new()
    }

    /// Name and expression of the match conditions that are part of it, and not of its stage. Default: none.
    fn conditions(&self) -> Vec<(&str, &str)> {
        Vec::new()
    }

    /// Whether `now` may refuse less than this: it is of another kind, or is called in another way. What does not come of
    /// a part of a file does not count: another module or URL, other values in settings. Default: whether they differ.
    fn may_refuse_more_than(&self, now: &HookDefinition) -> bool {
        !self.equals(&**now)
    }

    /// The field of a native stage that says what it calls, and its value; `None` if no native stage can.
    fn to_native(&self) -> Option<(&'static str, Json)>;

    /// Sentences about the parts of it that no native stage can have. Default: none.
    fn without_native_form(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Sentences about the differences of the hook that is read from its native form. Default: none.
    fn differences_of_native(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Whether this hook, read from the native form of it, has everything. Default: whether they are equal.
    fn is_complete_in(&self, native: &HookDefinition) -> bool {
        self.equals(&**native)
    }

    /// The hook that the stage calls.
    ///
    /// # Errors
    ///
    /// When it cannot be made of what it is given.
    fn prepare(&self, given: HookContext<'_>) -> Result<PreparedHook, HookError>;
}

/// The parts of a [`HookKind`] that are the same for every type.
pub trait HookValue: Any + fmt::Debug + Send + Sync {
    /// Clones it as a value of any kind.
    fn boxed(&self) -> Box<dyn HookKind>;
    /// Whether the other one has the same type and value.
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
    /// The hook, if it is of this kind.
    pub fn get<K: HookKind>(&self) -> Option<&K> {
        (&*self.0 as &dyn Any).downcast_ref()
    }

    /// The hook, if it is of this kind, to change it.
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

/// Reads a hook from its field of a native stage, in a chain of this phase.
pub(crate) type ReadHook = fn(&Node<'_>, Phase, &mut Mistakes) -> Option<HookDefinition>;

/// The fields of a native stage that say what it calls.
pub(crate) const NATIVE_FIELDS: [(&str, ReadHook); 5] = [
    ("plugin", |node, _, mistakes| {
        Some(plugin::read(node, mistakes)?.into())
    }),
    ("webhook", |node, _, mistakes| {
        Some(webhook::read(node, mistakes)?.into())
    }),
    ("cel", |node, phase, mistakes| {
        Some(cel::read(node, phase, mistakes)?.into())
    }),
    ("rego", |node, _, mistakes| {
        Some(rego::read(node, mistakes)?.into())
    }),
    ("group", |node, _, mistakes| {
        Some(group::read(node, mistakes)?.into())
    }),
];

/// The parts of a host that a hook may use when it is prepared.
pub struct HookContext<'a> {
    /// The phase of its chain.
    pub phase: Phase,
    /// Its plugins, which are loaded already.
    pub plugins: Vec<PreparedHook>,
    /// The authorizer, for expressions that use it.
    pub authorizer: &'a Arc<dyn Authorizer>,
    /// The reader of the control plane; `None` if there is none.
    pub cluster: Option<&'a Arc<dyn ClusterReader>>,
    /// The source of the labels of namespaces.
    pub namespaces: &'a Arc<dyn NamespaceSource>,
    /// Makes a client of a webhook in a chain of this phase; the text is its URL.
    pub connect: &'a ConnectWebhook<'a>,
}

impl fmt::Debug for HookContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookContext")
            .field("phase", &self.phase)
            .field("plugins", &self.plugins)
            .finish_non_exhaustive()
    }
}

/// The type of [`HookContext::connect`].
pub type ConnectWebhook<'a> =
    dyn Fn(&WebhookDefinition, Phase) -> Result<(Arc<dyn Hook>, String), HookError> + 'a;

/// The reason for which a hook cannot be prepared.
pub type HookError = Box<dyn Error + Send + Sync>;

/// A hook that can be called, and what is known about it.
#[derive(Clone)]
#[non_exhaustive]
pub struct PreparedHook {
    /// The hook that is called.
    pub hook: Arc<dyn Hook>,
    /// The description of it in the status and the console.
    pub status: HookStatus,
    /// The key of its statistics: a hook with another key in the same stage begins new ones. Default: empty.
    pub identity: String,
    /// The failures that it may have, besides those that any stage may have. Default: all.
    pub failures: &'static [FailureKind],
    /// Whether a server gets the requests. Default: no.
    pub calls_server: bool,
}

impl PreparedHook {
    /// A hook that may fail in any way.
    pub fn new(hook: Arc<dyn Hook>, status: HookStatus) -> Self {
        Self {
            hook,
            status,
            identity: String::new(),
            failures: FailureKind::ALL,
            calls_server: false,
        }
    }
}

impl fmt::Debug for PreparedHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedHook")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

/// The hook of a stage in the status. The facts of its kind are further fields: `url` of a webhook, `expressions`,
/// `expression` of a group, `mutators`, the fields of `PluginStatus`, and `source` and `reason` of an unavailable plugin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct HookStatus {
    /// The kind: `plugin`, `webhook`, `cel`, `group`, `mutators`, `native` (code of the embedding program), or `unavailable`
    /// (a plugin whose module could not be fetched when the table was built: each call fails as `unreachable`).
    #[serde(rename = "type")]
    pub kind: String,
    /// The hook in one line: the name of a plugin, the URL of a webhook, an expression.
    #[serde(default)]
    pub summary: String,
    /// The plugins of a group, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub plugins: BTreeMap<String, HookStatus>,
    /// Everything else that the kind shows.
    #[serde(flatten)]
    pub facts: Map<String, Json>,
}

impl HookStatus {
    /// A hook of this kind.
    pub fn new(kind: &str, summary: impl Into<String>) -> Self {
        Self {
            kind: kind.to_owned(),
            summary: summary.into(),
            ..Self::default()
        }
    }

    /// This status with one more fact.
    pub fn with(mut self, name: &str, fact: impl Into<Json>) -> Self {
        self.facts.insert(name.to_owned(), fact.into());
        self
    }

    /// A fact that is text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.facts.get(name)?.as_str()
    }

    /// The hook itself, and the plugins of a group.
    pub fn parts(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.plugins.values())
    }
}
