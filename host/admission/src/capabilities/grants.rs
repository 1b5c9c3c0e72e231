use std::{
    collections::{BTreeMap, BTreeSet},
    str::FromStr,
    sync::Arc,
};

use crate::{ClusterKind, HttpGrant, HttpOrigin, ImageGrant, InvalidClusterKind, InvalidHttpOrigin, InvalidImageGrant};

/// The capabilities that a stage grants its plugin, and the limits of these capabilities. Default: none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// The kinds of resources that the plugin may read. If one of them is an access review, such as
    /// `SubjectAccessReview`, the plugin may also check permissions.
    pub cluster: BTreeSet<ClusterKind>,
    /// The only namespace whose objects the plugin may read. `None` allows all namespaces and cluster-scoped objects.
    pub namespace: Option<Arc<str>>,
    /// The HTTP requests that the plugin may send.
    pub http: Vec<HttpGrant>,
    /// The images in registries that the plugin may read.
    pub images: Vec<ImageGrant>,
    /// The environment variables of the plugin, by name.
    pub environment: BTreeMap<String, String>,
}

/// The reason why a text is not a valid grant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGrant {
    /// The text does not have the form `CAPABILITY=GRANT`.
    #[error(
        "`{0}` is not a capability; write cluster=v1/Node, http=https://policy.example.com, images=ghcr.io or \
         environment=NAME=VALUE"
    )]
    Form(String),
    /// The text of a grant for `cluster` does not name a kind of resource.
    #[error(transparent)]
    Cluster(#[from] InvalidClusterKind),
    /// The text of a grant for `http` is not an origin.
    #[error(transparent)]
    Http(#[from] InvalidHttpOrigin),
    /// The text of a grant for `images` is not a registry.
    #[error(transparent)]
    Images(#[from] InvalidImageGrant),
}

impl Grants {
    /// Returns whether the plugin may check the permissions of the request's user.
    pub fn may_check_own_access(&self) -> bool {
        self.cluster.iter().any(ClusterKind::is_access_review)
    }

    /// Returns whether the plugin may check the permissions of any user.
    pub fn may_check_any_access(&self) -> bool {
        self.cluster.iter().any(ClusterKind::is_any_access)
    }

    /// Returns whether the grants let the plugin send requests to any server besides the control plane.
    pub fn calls_out(&self) -> bool {
        !self.http.is_empty() || !self.images.is_empty()
    }

    /// Adds the grants of `more` to these grants. The namespace of `more` is ignored.
    pub fn extend(&mut self, more: Self) {
        let Self {
            cluster,
            namespace: _,
            http,
            images,
            environment,
        } = more;
        self.cluster.extend(cluster);
        self.http.extend(http);
        self.images.extend(images);
        self.environment.extend(environment);
    }

    /// Compares these grants with the grants that an operator allows. For each grant that `allowed` does not include,
    /// returns a description, and the configuration key that would allow it, such as `allow.cluster`. Environment
    /// variables need no permission, because their values are written in the grant itself.
    pub fn find_grants_beyond(&self, allowed: &Self) -> Vec<(String, &'static str)> {
        let Self {
            cluster,
            namespace: _,
            http,
            images,
            environment: _,
        } = self;
        let mut missing = Vec::new();
        for kind in cluster.difference(&allowed.cluster) {
            missing.push((format!("the grant of `{kind}`"), "allow.cluster"));
        }
        for grant in http.iter().filter(|grant| !allowed.http.contains(grant)) {
            missing.push((format!("this grant of requests to {}", grant.origin), "allow.http"));
        }
        let includes = |grant| allowed.images.contains(grant) || allowed.images.contains(&ImageGrant::ALL);
        for grant in images.iter().filter(|grant| !includes(grant)) {
            missing.push((format!("the grant of images in `{grant}`"), "allow.images"));
        }
        missing
    }
}

/// Parses one grant, as in `admittance run --allow cluster=v1/Node`.
impl FromStr for Grants {
    type Err = InvalidGrant;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || InvalidGrant::Form(text.to_owned());
        let mut grants = Self::default();
        let (capability, grant) = text.split_once('=').ok_or_else(wrong)?;
        match capability {
            "cluster" => {
                grants.cluster.insert(grant.parse()?);
            }
            "http" => grants.http.push(grant.parse::<HttpOrigin>()?.into()),
            "images" => grants.images.push(grant.parse()?),
            "environment" => {
                let value = grant.split_once('=').filter(|(name, _)| !name.is_empty());
                let (name, value) = value.ok_or_else(wrong)?;
                grants.environment.insert(name.to_owned(), value.to_owned());
            }
            _ => return Err(wrong()),
        }
        Ok(grants)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_parsed_from_text() {
        let mut all = Grants::default();
        for text in [
            "cluster=v1/Node",
            "cluster=apps/v1/Deployment",
            "http=https://a.example",
            "images=ghcr.io",
            "environment=A=b=c",
        ] {
            all.extend(text.parse().unwrap());
        }
        let kinds: Vec<_> = all.cluster.iter().map(ToString::to_string).collect();
        assert_eq!(kinds, ["apps/v1/Deployment", "v1/Node"]);
        assert_eq!((all.http.len(), all.images.len()), (1, 1));
        assert_eq!(all.environment["A"], "b=c");
        for (text, expected) in [
            ("v1/Node", "cluster=v1/Node"),
            ("cluster=Node", "v1/Node"),
            ("http=http://a.example", "https"),
            ("environment=A", "environment=NAME=VALUE"),
            ("files=/", "is not a capability"),
        ] {
            let error = text.parse::<Grants>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
