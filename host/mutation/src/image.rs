//! Replaces the registry, repository, or tag in names of container images.

/// The parts of an image's name that a mutator replaces. A part that is `None` is not changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageParts {
    /// The registry in the image's name, such as `registry.example.com:5000`.
    pub domain: Option<String>,
    /// The repository in the image's name, such as `library/nginx`.
    pub path: Option<String>,
    /// The image's tag with its leading `:`, or its digest with its leading `@`.
    pub tag: Option<String>,
}

impl ImageParts {
    /// Returns the name of an image, in which the parts that are set in `self` replace the original parts.
    pub(crate) fn replace_in(&self, image: &str) -> String {
        let (domain, rest) = split_domain(image).unwrap_or(("", image));
        let (path, tag) = rest.split_at(rest.find([':', '@']).unwrap_or(rest.len()));
        let domain = self.domain.as_deref().unwrap_or(domain);
        let path = self.path.as_deref().unwrap_or(path);
        let tag = self.tag.as_deref().unwrap_or(tag);
        let slash = if domain.is_empty() { "" } else { "/" };
        format!("{domain}{slash}{path}{tag}")
    }

    /// Returns whether the first segment of `path` looks like a domain, as in `example.com/nginx`. An image whose name
    /// begins with such a path seems to come from the registry `example.com`.
    pub fn path_has_domain(&self) -> bool {
        self.path.as_deref().is_some_and(|path| split_domain(path).is_some())
    }
}

fn split_domain(image: &str) -> Option<(&str, &str)> {
    let (domain, rest) = image.split_once('/')?;
    (domain.contains(['.', ':']) || domain == "localhost").then_some((domain, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Source: Gatekeeper 3.x, pkg/mutation/mutators/assignimage/imageparser_test.go.
    #[test]
    fn each_part_of_an_image_name_is_set_separately() {
        let [domain, path, tag] = [
            ImageParts {
                domain: Some("d.io".to_owned()),
                ..ImageParts::default()
            },
            ImageParts {
                path: Some("p".to_owned()),
                ..ImageParts::default()
            },
            ImageParts {
                tag: Some(":t".to_owned()),
                ..ImageParts::default()
            },
        ];
        for (image, with_domain, with_path, with_tag) in [
            (
                "gcr.io/some-image/hello:latest",
                "d.io/some-image/hello:latest",
                "gcr.io/p:latest",
                "gcr.io/some-image/hello:t",
            ),
            (
                "some-image/hello@sha256:abcde",
                "d.io/some-image/hello@sha256:abcde",
                "p@sha256:abcde",
                "some-image/hello:t",
            ),
            (
                "some-image:tag123",
                "d.io/some-image:tag123",
                "p:tag123",
                "some-image:t",
            ),
            ("alpine", "d.io/alpine", "p", "alpine:t"),
            ("_/alpine:latest", "d.io/_/alpine:latest", "p:latest", "_/alpine:t"),
            (
                "this.that.com:5000/repo/alpine:latest",
                "d.io/repo/alpine:latest",
                "this.that.com:5000/p:latest",
                "this.that.com:5000/repo/alpine:t",
            ),
            ("localhost/alpine", "d.io/alpine", "localhost/p", "localhost/alpine:t"),
            (
                "localhost:5000/repo/alpine:latest",
                "d.io/repo/alpine:latest",
                "localhost:5000/p:latest",
                "localhost:5000/repo/alpine:t",
            ),
            (
                "x.y.z/gcr.io/repo:latest",
                "d.io/gcr.io/repo:latest",
                "x.y.z/p:latest",
                "x.y.z/gcr.io/repo:t",
            ),
            (
                "x.io/get/ready4.//this/not.good:404@yikes/bad/string",
                "d.io/get/ready4.//this/not.good:404@yikes/bad/string",
                "x.io/p:404@yikes/bad/string",
                "x.io/get/ready4.//this/not.good:t",
            ),
            ("", "d.io/", "p", ":t"),
        ] {
            assert_eq!(domain.replace_in(image), with_domain);
            assert_eq!(path.replace_in(image), with_path);
            assert_eq!(tag.replace_in(image), with_tag);
        }
        let all = ImageParts {
            domain: Some("my.registry.io:2000".to_owned()),
            path: Some("repo/app".to_owned()),
            tag: Some("@sha256:abcde67890123456789abc345678901a".to_owned()),
        };
        let expected = "my.registry.io:2000/repo/app@sha256:abcde67890123456789abc345678901a";
        assert_eq!(all.replace_in("nginx:1"), expected);
        assert_eq!(all.replace_in(expected), expected);
    }
}
