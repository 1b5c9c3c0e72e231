//! The names of BCS's definitions of hooks.

use admittance_definitions::DefinitionId;

/// The `kind` of BCS's definitions of hooks. Its case is ignored.
pub(crate) const KIND: &str = "admissionwebhook";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, derive_more::Display)]
#[display("{namespace}/{name}")]
pub(crate) struct DefinitionName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl DefinitionName {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (namespace, name) = text.split_once('/')?;
        (!namespace.is_empty() && !name.is_empty() && !name.contains('/')).then(|| Self::new(namespace, name))
    }

    pub(crate) fn from_id(id: &DefinitionId) -> Option<Self> {
        id.kind
            .eq_ignore_ascii_case(KIND)
            .then(|| Self::parse(&id.name))
            .flatten()
    }

    pub(crate) fn id(&self) -> DefinitionId {
        DefinitionId {
            kind: KIND.to_owned(),
            name: self.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_definition_is_a_namespace_and_a_name() {
        // (kind in the ID, name in the ID, expected namespace and name of the definition)
        for (kind, name, expected) in [
            ("admissionwebhook", "defaultGroup/a", Some(("defaultGroup", "a"))),
            ("AdmissionWebhook", "a/b", Some(("a", "b"))),
            ("admissionwebhook", "a/b/c", None),
            ("admissionwebhook", "a/", None),
            ("admissionwebhook", "/b", None),
            ("admissionwebhook", "a", None),
            ("AdmissionChain", "a/b", None),
            ("AdmissionWebhookConfiguration", "a/b", None),
        ] {
            let id = DefinitionId {
                kind: kind.into(),
                name: name.into(),
            };
            let expected = expected.map(|(namespace, name)| DefinitionName::new(namespace, name));
            assert_eq!(DefinitionName::from_id(&id), expected, "{kind} {name}");
        }
    }
}
