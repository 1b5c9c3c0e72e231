use admittance_admission::{Denial, Failure, FailureKind, Object, Operation, Patch, Request, Response, Verdict};

use self::bindings::admittance::plugin::types;
use crate::{Description, ResourceHint};

pub(crate) mod bindings {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "plugin",
        imports: { default: async | trappable },
        exports: { default: async },
        ownership: Borrowing { duplicate_if_necessary: true },
    });
}

pub(crate) const PACKAGE: &str = "admittance:plugin/";

/// The versions of the contract that this host accepts.
pub(crate) const ACCEPTED_VERSIONS: &str = "0.1.x";

pub(crate) fn accepts_version(version: &str) -> bool {
    let release = version.split_once(['-', '+']).map_or(version, |(release, _)| release);
    let mut numbers = release.split('.');
    numbers.next() == Some("0")
        && numbers.next() == Some("1")
        && numbers.next().is_some_and(|patch| patch.parse::<u64>().is_ok())
        && numbers.next().is_none()
        // A version that contains `-`, such as `0.1.0-rc.1`, is a pre-release. It is compatible with no other version.
        && !version.contains('-')
}

impl From<types::Description> for Description {
    fn from(from: types::Description) -> Self {
        Self {
            name: from.name,
            version: from.version,
            summary: from.summary,
            mutates: from.mutates,
            resources: from
                .resources
                .into_iter()
                .map(|rule| ResourceHint {
                    api_groups: rule.api_groups,
                    api_versions: rule.api_versions,
                    resources: rule.resources,
                })
                .collect(),
            settings_schema: from.settings_schema,
            capabilities: from.capabilities.into_iter().map(Into::into).collect(),
        }
    }
}

pub(crate) struct ContractLists<'a> {
    groups: Vec<&'a str>,
    extra_values: Vec<(&'a str, Vec<&'a str>)>,
}

impl<'a> ContractLists<'a> {
    pub(crate) fn from_request(request: &'a Request) -> Self {
        let user = &request.user;
        Self {
            groups: user.groups.iter().map(String::as_str).collect(),
            extra_values: user
                .extra
                .iter()
                .map(|(key, values)| (key.as_str(), values.iter().map(String::as_str).collect()))
                .collect(),
        }
    }

    pub(crate) fn extra(&'a self) -> Vec<(&'a str, &'a [&'a str])> {
        self.extra_values
            .iter()
            .map(|(key, values)| (*key, values.as_slice()))
            .collect()
    }
}

/// Converts a request to the contract's type, which borrows it. The request is copied only into the guest's memory.
pub(crate) fn convert_request<'a>(
    request: &'a Request,
    lists: &'a ContractLists<'a>,
    extra: &'a [(&'a str, &'a [&'a str])],
) -> types::Request<'a> {
    types::Request {
        uid: request.uid.as_str(),
        operation: match request.operation {
            Operation::Create => types::Operation::Create,
            Operation::Update => types::Operation::Update,
            Operation::Delete => types::Operation::Delete,
            Operation::Connect => types::Operation::Connect,
        },
        kind: types::GroupVersionKind {
            group: &request.kind.group,
            version: &request.kind.version,
            kind: &request.kind.kind,
        },
        resource: types::GroupVersionResource {
            group: &request.resource.group,
            version: &request.resource.version,
            resource: &request.resource.resource,
        },
        subresource: request.subresource.as_deref(),
        name: &request.name,
        namespace: request.namespace.as_deref(),
        user: types::UserInfoParam {
            username: &request.user.username,
            uid: &request.user.uid,
            groups: &lists.groups,
            extra,
        },
        object: request.object.as_ref().map(Object::text),
        old_object: request.old_object.as_ref().map(Object::text),
        options: request.options.as_ref().map(Object::text),
        dry_run: request.dry_run,
    }
}

pub(crate) fn convert_response(from: types::Response, limit: usize) -> Result<Response, Failure> {
    let size = response_size(&from);
    if size > limit {
        return Err(Failure::new(
            FailureKind::OutputTooLarge,
            format!("the plugin's response has {size} bytes; the limit is {limit}"),
        ));
    }
    let verdict = match from.verdict {
        types::Verdict::Allow => Verdict::Allow,
        types::Verdict::Patch(text) => Verdict::Patch(
            Patch::parse(&text)
                .map_err(|error| Failure::new(error.kind(), format!("the plugin's patch is {error}")))?,
        ),
        types::Verdict::Replace(text) => Verdict::Replace(
            Object::parse(&text).map_err(|error| invalid_response(format!("the plugin's replacement is {error}")))?,
        ),
        types::Verdict::Deny(denial) => Verdict::Deny(Denial::new(denial.code, denial.reason, denial.message)),
    };
    let mut response = Response::new(verdict);
    response.warnings = from.warnings;
    response.audit_annotations = from.audit_annotations;
    Ok(response)
}

fn invalid_response(message: String) -> Failure {
    Failure::new(FailureKind::InvalidResponse, message)
}

/// A string in a list counts as its content and this number of bytes, so a list of many empty strings has a size too.
const STRING_OVERHEAD: usize = 8;

pub(crate) fn response_size(response: &types::Response) -> usize {
    let verdict = match &response.verdict {
        types::Verdict::Allow => 0,
        types::Verdict::Patch(text) | types::Verdict::Replace(text) => text.len(),
        types::Verdict::Deny(denial) => denial.reason.len() + denial.message.len(),
    };
    let warnings: usize = response.warnings.iter().map(|text| text.len() + STRING_OVERHEAD).sum();
    let annotations: usize = response
        .audit_annotations
        .iter()
        .map(|(key, value)| key.len() + value.len() + 2 * STRING_OVERHEAD)
        .sum();
    verdict + warnings + annotations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compatible_versions_of_the_contract_are_accepted() {
        for (version, accepted) in [
            ("0.1.0", true),
            ("0.1.7", true),
            ("0.1.7+build", true),
            ("0.2.0", false),
            ("0.10.0", false),
            ("1.1.0", false),
            ("0.1", false),
            ("0.1.0-rc1", false),
            ("0.1.0.0", false),
            ("", false),
        ] {
            assert_eq!(accepts_version(version), accepted, "{version}");
        }
    }

    #[test]
    fn an_invalid_response_is_a_failure() {
        let of = |verdict| types::Response {
            verdict,
            warnings: Vec::new(),
            audit_annotations: Vec::new(),
        };
        for (case, verdict, expected) in [
            (
                "not JSON",
                types::Verdict::Patch("[{".into()),
                Some(FailureKind::InvalidResponse),
            ),
            (
                "patch that is an object",
                types::Verdict::Patch("{}".into()),
                Some(FailureKind::InvalidResponse),
            ),
            (
                "unknown operation",
                types::Verdict::Patch(r#"[{"op":"grow","path":"/a"}]"#.into()),
                Some(FailureKind::InvalidResponse),
            ),
            ("empty patch", types::Verdict::Patch("[]".into()), None),
            (
                "replacement that is an array",
                types::Verdict::Replace("[]".into()),
                Some(FailureKind::InvalidResponse),
            ),
            (
                "empty replacement",
                types::Verdict::Replace(String::new()),
                Some(FailureKind::InvalidResponse),
            ),
            ("replacement", types::Verdict::Replace("{}".into()), None),
            (
                "large",
                types::Verdict::Replace(" ".repeat(65)),
                Some(FailureKind::OutputTooLarge),
            ),
        ] {
            assert_eq!(
                convert_response(of(verdict), 64).err().map(|failure| failure.kind),
                expected,
                "{case}"
            );
        }
    }

    #[test]
    fn the_size_of_a_response_includes_every_string() {
        let response = types::Response {
            verdict: types::Verdict::Deny(types::Denial {
                code: 403,
                reason: "ab".into(),
                message: "c".into(),
            }),
            warnings: vec!["defg".into()],
            audit_annotations: vec![("hi".into(), "jkl".into()), (String::new(), String::new())],
        };
        assert_eq!(response_size(&response), 12 + 5 * STRING_OVERHEAD);
    }
}
