//! A cluster that consists of plain manifests, for tests of plugins.

use std::{collections::BTreeMap, sync::Arc};

use admittance_admission::{
    AccessAttributes, AccessCheckResult, ClusterError, ClusterKind, ClusterPage, ClusterQuery, ClusterReader, Deadline,
    Labels, NamespaceLookupError, NamespaceSource, StaticNamespaces, UserInfo, async_trait,
};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

use crate::{
    authorize::NO_USER_MESSAGE,
    cache::{Key, ObjectCache},
    item::{CachedObject, StoredText},
    kinds::{PageStart, restart_error},
    roles::ManifestRoles,
    selector::TextSelector,
};

/// The objects of a cluster that exists only in a test. A namespace has the labels of its `Namespace` object, if there
/// is one, and the label `kubernetes.io/metadata.name`. The roles among the objects determine what users may do. Cheap
/// to clone.
#[derive(Clone, Debug, Default)]
pub struct ManifestFiles(Arc<ManifestContents>);

#[derive(Debug, Default)]
struct ManifestContents {
    kinds: BTreeMap<ClusterKind, ObjectCache<StoredText>>,
    roles: ManifestRoles,
}

impl ManifestFiles {
    /// Creates a cluster of these objects. If two objects have the same kind, namespace and name, the later one counts.
    ///
    /// # Errors
    ///
    /// Returns a sentence about the first value that is not an [object](Self::object_kind), or is a role that cannot be
    /// read.
    pub fn new(objects: impl IntoIterator<Item = Value>) -> Result<Self, String> {
        let ManifestContents { mut kinds, mut roles } = ManifestContents::default();
        for (index, object) in objects.into_iter().enumerate() {
            let of_object = |problem: String| format!("object {} of the cluster: {problem}", index + 1);
            let kind = Self::object_kind(&object).map_err(of_object)?;
            let api_version = kind.api_version();
            let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind.kind()));
            roles.add(&object).map_err(of_object)?;
            let item: CachedObject = serde_json::from_value(object).map_err(|error| of_object(error.to_string()))?;
            let objects = kinds.entry(kind).or_default();
            objects.insert(item.key(), item.into_stored(&resource));
        }
        Ok(Self(Arc::new(ManifestContents { kinds, roles })))
    }

    /// Returns the kind of a manifest's object.
    ///
    /// # Errors
    ///
    /// If the value lacks `apiVersion`, `kind` or `metadata.name`, returns a sentence that says so.
    pub fn object_kind(object: &Value) -> Result<ClusterKind, String> {
        let text = |field: &str| {
            let pointer = format!("/{}", field.replace('.', "/"));
            let text = object.pointer(&pointer).and_then(Value::as_str);
            let missing_field = || format!("`{field}` is missing; write it");
            text.filter(|text| !text.is_empty()).ok_or_else(missing_field)
        };
        let kind = ClusterKind::new(text("apiVersion")?, text("kind")?);
        text("metadata.name")?;
        Ok(kind)
    }

    fn find(&self, kind: &ClusterKind, namespace: Option<&str>, name: &str) -> Option<StoredText> {
        self.0.kinds.get(kind)?.get(&Key::new(namespace, name))
    }
}

#[async_trait]
impl ClusterReader for ManifestFiles {
    async fn get(
        &self,
        kind: &ClusterKind,
        namespace: Option<&str>,
        name: &str,
        _: Deadline,
    ) -> Result<Option<String>, ClusterError> {
        let stored_object = self.find(kind, namespace, name);
        Ok(stored_object.map(|object| object.json.to_string()))
    }

    async fn list(&self, kind: &ClusterKind, query: &ClusterQuery, _: Deadline) -> Result<ClusterPage, ClusterError> {
        let selector = TextSelector::parse(&query.label_selector).map_err(ClusterError::Refused)?;
        let after = match query.from.as_deref().map(PageStart::parse).transpose()? {
            Some(PageStart::OfServer(_)) => return Err(restart_error()),
            Some(PageStart::After(key)) => Some(key),
            None => None,
        };
        let objects = self.0.kinds.get(kind);
        Ok(objects.map_or_else(ClusterPage::default, |objects| {
            PageStart::page_from_cache(objects, query, after.as_ref(), &selector)
        }))
    }

    async fn check_access(
        &self,
        user: &UserInfo,
        action: &AccessAttributes,
        _: Deadline,
    ) -> Result<AccessCheckResult, ClusterError> {
        if user.username.is_empty() && user.groups.is_empty() {
            return Err(ClusterError::Refused(NO_USER_MESSAGE.to_owned()));
        }
        Ok(self.0.roles.check_access(user, action))
    }
}

#[async_trait]
impl NamespaceSource for ManifestFiles {
    async fn labels(&self, namespace: &str) -> Result<Labels, NamespaceLookupError> {
        let namespace_object = self.find(&ClusterKind::new("v1", "Namespace"), None, namespace);
        let namespace_labels = namespace_object.map(|object| (namespace.to_owned(), (*object.labels).clone()));
        StaticNamespaces::new(namespace_labels).labels(namespace).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn lookups_select_by_kind_namespace_name_and_label() {
        let object = |kind: &str, namespace: Option<&str>, name: &str, zone: &str| {
            json!({"apiVersion": "v1", "kind": kind,
                   "metadata": {"namespace": namespace, "name": name, "labels": {"zone": zone}}})
        };
        let cluster = ManifestFiles::new([
            object("Node", None, "n1", "a"),
            object("Node", None, "n2", "b"),
            object("Pod", Some("shop"), "web", "a"),
            object("Pod", Some("ops"), "web", "b"),
            object("Namespace", None, "shop", "a"),
        ])
        .unwrap();
        let deadline = Deadline::after(Duration::from_secs(1));
        let query = |namespace: Option<&str>, selector: &str| {
            let mut query = ClusterQuery::default();
            query.namespace = namespace.map(str::to_owned);
            query.label_selector = selector.to_owned();
            query
        };
        let name = |text: &str| {
            let object: Value = serde_json::from_str(text).unwrap();
            let text_at = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or("-");
            format!("{}/{}", text_at("/metadata/namespace"), text_at("/metadata/name"))
        };
        for (kind, namespace, selector, expected) in [
            ("Node", None, "", vec!["-/n1", "-/n2"]),
            ("Node", None, "zone notin (a)", vec!["-/n2"]),
            ("Pod", None, "", vec!["ops/web", "shop/web"]),
            ("Pod", Some("shop"), "", vec!["shop/web"]),
            ("Pod", Some("shop"), "zone=b", vec![]),
            ("Service", None, "", vec![]),
        ] {
            let kind = ClusterKind::new("v1", kind);
            let page = cluster
                .list(&kind, &query(namespace, selector), deadline)
                .await
                .unwrap();
            let listed_names: Vec<_> = page.objects.iter().map(|text| name(text)).collect();
            assert_eq!(listed_names, expected, "{kind} {namespace:?} {selector}");
        }
        let pods = ClusterKind::new("v1", "Pod");
        assert!(matches!(
            cluster.list(&pods, &query(None, "a b"), deadline).await,
            Err(ClusterError::Refused(_))
        ));
        for (namespace, is_found) in [(Some("shop"), true), (Some("none"), false), (None, false)] {
            let object = cluster.get(&pods, namespace, "web", deadline).await.unwrap();
            assert_eq!(object.is_some(), is_found, "{namespace:?}");
        }
        for (namespace, zone) in [("shop", Some("a")), ("other", None)] {
            let labels = cluster.labels(namespace).await.unwrap();
            assert_eq!(labels.get("zone").map(String::as_str), zone);
            assert_eq!(
                labels.get("kubernetes.io/metadata.name").map(String::as_str),
                Some(namespace)
            );
        }
    }

    #[test]
    fn a_manifest_without_type_or_name_is_refused() {
        for (object, expected) in [
            (json!({"kind": "Node", "metadata": {"name": "a"}}), "`apiVersion`"),
            (json!({"apiVersion": "v1", "metadata": {"name": "a"}}), "`kind`"),
            (json!({"apiVersion": "v1", "kind": "Node"}), "`metadata.name`"),
            (json!(["a"]), "`apiVersion`"),
        ] {
            let error = ManifestFiles::new([object]).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
