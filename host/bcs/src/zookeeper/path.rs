//! Paths of nodes in ZooKeeper.

use std::str::FromStr;

/// The absolute path of a node in ZooKeeper, such as `/bcs/services/endpoints/scheduler`.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
pub struct NodePath(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` cannot be used: {reason}; write one such as /bcs/services/endpoints/scheduler")]
pub struct InvalidNodePath {
    pub text: String,
    pub reason: &'static str,
}

impl NodePath {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the path of the child of this node with this name.
    pub fn child(&self, name: &str) -> Result<Self, InvalidNodePath> {
        if name.contains('/') {
            return Err(InvalidNodePath {
                text: name.to_owned(),
                reason: "the name of a node must not contain `/`",
            });
        }
        format!("{}/{name}", self.0).parse()
    }
}

impl FromStr for NodePath {
    type Err = InvalidNodePath;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = |reason: &'static str| InvalidNodePath {
            text: text.to_owned(),
            reason,
        };
        check_path(text).map_err(wrong)?;
        if text == "/" {
            return Err(wrong("the root is not allowed"));
        }
        Ok(Self(text.to_owned()))
    }
}

/// Checks whether ZooKeeper allows a path. The error is a sentence that says what is wrong.
pub fn check_path(path: &str) -> Result<(), &'static str> {
    let Some(rest) = path.strip_prefix('/') else {
        return Err("a ZooKeeper path must begin with `/`");
    };
    if rest.is_empty() {
        return Ok(());
    }
    for name in rest.split('/') {
        match name {
            "" => return Err("a ZooKeeper path must not end with `/` or contain `//`"),
            "." | ".." => return Err("a ZooKeeper path must not contain `.` or `..` as a name"),
            _ => {}
        }
    }
    let is_refused = |character: char| matches!(character, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}');
    if rest.contains(is_refused) {
        return Err("a ZooKeeper path must not contain control characters");
    }
    Ok(())
}

pub(crate) fn join(parent: &str, name: &str) -> String {
    let parent = parent.trim_end_matches('/');
    format!("{parent}/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_paths_of_nodes_are_accepted() {
        for (text, is_valid) in [
            ("/a", true),
            ("/blueking/admissionwebhook", true),
            ("/a b/_c_0-x", true),
            ("/a/...", true),
            ("", false),
            ("/", false),
            ("a", false),
            ("a/b", false),
            ("/a/", false),
            ("/a//b", false),
            ("/a/./b", false),
            ("/a/..", false),
            ("/a\nb", false),
            ("/a\u{fffd}", false),
        ] {
            let path = text.parse::<NodePath>();
            assert_eq!(path.is_ok(), is_valid, "{text:?}");
            if let Ok(path) = path {
                assert_eq!(path.to_string(), text);
            }
        }
    }

    #[test]
    fn a_child_is_one_segment_below_its_node() {
        let path: NodePath = "/a".parse().unwrap();
        assert_eq!(path.child("b").unwrap().as_str(), "/a/b");
        for name in ["", "b/c", "..", "\0"] {
            assert!(path.child(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn only_paths_that_zookeeper_accepts_are_parsed() {
        for (path, is_valid) in [
            ("/", true),
            ("/bcs/services/endpoints/scheduler", true),
            ("/路径/.a./..b", true),
            ("", false),
            ("bcs", false),
            ("/bcs/", false),
            ("/bcs//services", false),
            ("/bcs/./services", false),
            ("/bcs/..", false),
            ("/bcs/\u{7}", false),
        ] {
            assert_eq!(check_path(path).is_ok(), is_valid, "{path:?}");
        }
    }
}
