//! Parses the arguments of `#[plugin(...)]`.

use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Ident, LitBool, LitStr, Result, Token};

#[derive(Default)]
pub(crate) struct Arguments {
    pub(crate) name: Option<LitStr>,
    pub(crate) version: Option<LitStr>,
    pub(crate) summary: Option<LitStr>,
    pub(crate) mutates: bool,
    pub(crate) resources: Vec<ResourceRule>,
    pub(crate) capabilities: Vec<Capability>,
}

pub(crate) struct ResourceRule {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resources: Vec<String>,
}

/// A capability that the plugin requests: the name of the variant in the contract's `Capability`, and the text in it.
pub(crate) struct Capability {
    pub(crate) variant: Ident,
    pub(crate) text: String,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut arguments = Self::default();
        let mut given_keys: Vec<String> = Vec::new();
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            let text = key.to_string();
            if given_keys.contains(&text) {
                return Err(Error::new(key.span(), format!("`{text}` is a duplicate argument")));
            }
            match text.as_str() {
                "name" => arguments.name = Some(parse_name(input)?),
                "version" => arguments.version = Some(parse_version(input)?),
                "summary" => arguments.summary = Some(parse_value(input)?),
                "mutates" => arguments.mutates = parse_flag(input)?,
                "resources" => arguments.resources = parse_resources(&parse_list::<LitStr>(input)?)?,
                "capabilities" => arguments.capabilities = parse_list(input)?.into_iter().collect(),
                _ => {
                    let message = format!(
                        "unknown argument `{text}`; expected name, version, summary, mutates, resources or capabilities"
                    );
                    return Err(Error::new(key.span(), message));
                }
            }
            given_keys.push(text);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(arguments)
    }
}

fn parse_value(input: ParseStream<'_>) -> Result<LitStr> {
    input.parse::<Token![=]>()?;
    input.parse()
}

fn parse_name(input: ParseStream<'_>) -> Result<LitStr> {
    let name = parse_value(input)?;
    let text = name.value();
    let is_right = text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if is_right {
        Ok(name)
    } else {
        Err(Error::new(
            name.span(),
            "a plugin's name must be in lower case with hyphens: \"sidecar-injector\"",
        ))
    }
}

fn parse_version(input: ParseStream<'_>) -> Result<LitStr> {
    let version = parse_value(input)?;
    let text = version.value();
    let core = text.split(['-', '+']).next().unwrap_or_default();
    let numbers = core.split('.').filter(|part| part.parse::<u64>().is_ok()).count();
    if numbers == 3 && core.split('.').count() == 3 {
        Ok(version)
    } else {
        Err(Error::new(
            version.span(),
            "a plugin's version must be semver: \"1.2.3\"",
        ))
    }
}

fn parse_flag(input: ParseStream<'_>) -> Result<bool> {
    if input.peek(Token![=]) {
        input.parse::<Token![=]>()?;
        return Ok(input.parse::<LitBool>()?.value);
    }
    Ok(true)
}

fn parse_list<T: Parse>(input: ParseStream<'_>) -> Result<Punctuated<T, Token![,]>> {
    input.parse::<Token![=]>()?;
    let content;
    syn::bracketed!(content in input);
    Punctuated::parse_terminated(&content)
}

/// Parses a list of resources such as `apps/v1/deployments`. Resources of the same group and version form one rule.
fn parse_resources(list: &Punctuated<LitStr, Token![,]>) -> Result<Vec<ResourceRule>> {
    let mut rules: Vec<ResourceRule> = Vec::new();
    for literal in list {
        let text = literal.value();
        let parts: Vec<&str> = text.split('/').collect();
        let (group, version, resource) = match parts.as_slice() {
            [version, resource @ ..] if is_version(version) || resource.len() == 1 => ("", *version, resource),
            [group, version, resource @ ..] => (*group, *version, resource),
            _ => ("", "", [].as_slice()),
        };
        let is_plural = |part: &&str| !part.is_empty() && !part.chars().any(char::is_uppercase);
        let is_right = !version.is_empty() && (1..=2).contains(&resource.len()) && resource.iter().all(is_plural);
        if !is_right {
            return Err(Error::new(
                literal.span(),
                "a resource must be version and plural in lower case, after the group if it has one: \"v1/pods\", \
                 \"apps/v1/deployments\", \"*/*/*\"",
            ));
        }
        let resource = resource.join("/");
        match rules
            .iter_mut()
            .find(|rule| rule.group == group && rule.version == version)
        {
            Some(rule) => rule.resources.push(resource),
            None => rules.push(ResourceRule {
                group: group.to_owned(),
                version: version.to_owned(),
                resources: vec![resource],
            }),
        }
    }
    Ok(rules)
}

/// Returns whether a part of a resource's name, such as `v1/pods`, is a version. If the first part is a version, the
/// name has no group, and the resource is in the core group.
fn is_version(part: &str) -> bool {
    part.strip_prefix('v')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

impl Parse for Capability {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let kind: Ident = input.parse()?;
        let (variant, is_right, requirement): (_, fn(&str) -> bool, _) = match kind.to_string().as_str() {
            "cluster" => (
                "Cluster",
                |text| text.contains('/'),
                "a kind with its version: \"v1/Node\", \"apps/v1/Deployment\"",
            ),
            "http" => (
                "Http",
                |text| text == "*" || text.starts_with("https://"),
                "an origin, \"https://policy.example.com\", or \"*\" for one from the settings",
            ),
            "environment" => ("Environment", |text| !text.is_empty(), "a name"),
            _ => {
                return Err(Error::new(
                    kind.span(),
                    "a capability must be cluster(\"v1/Node\"), http(\"https://policy.example.com\") or environment(\"NAME\")",
                ));
            }
        };
        let content;
        syn::parenthesized!(content in input);
        let literal: LitStr = content.parse()?;
        if !content.is_empty() {
            return Err(content.error("expected exactly one string"));
        }
        let text = literal.value();
        if !is_right(&text) {
            return Err(Error::new(literal.span(), format!("this must be {requirement}")));
        }
        let variant = Ident::new(variant, kind.span());
        Ok(Self { variant, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wrong_argument_has_its_own_message() {
        let table = [
            ("colour = 1", "unknown argument `colour`"),
            ("name = \"a\", name = \"b\"", "`name` is a duplicate argument"),
            ("name = \"Big Name\"", "lower case with hyphens"),
            ("version = \"one\"", "semver"),
            ("resources = [\"pods\"]", "version and plural"),
            ("resources = [\"v1/Pods\"]", "version and plural"),
            ("capabilities = [disk(\"/\")]", "a capability must be"),
            ("capabilities = [cluster(\"Node\")]", "a kind with its version"),
            ("capabilities = [http(\"http://a\")]", "an origin"),
            ("capabilities = [environment(\"\")]", "a name"),
            ("mutates mutates", "expected `,`"),
        ];
        for (input, message) in table {
            let error = syn::parse_str::<Arguments>(input).err().expect(input);
            assert!(error.to_string().contains(message), "{input}: {error}");
        }
    }

    #[test]
    fn resources_have_groups_and_subresources() {
        let table = [
            ("v1/pods", ("", "v1", "pods")),
            ("*/pods", ("", "*", "pods")),
            ("v1/pods/ephemeralcontainers", ("", "v1", "pods/ephemeralcontainers")),
            ("apps/v1/deployments", ("apps", "v1", "deployments")),
            ("apps/v1/deployments/scale", ("apps", "v1", "deployments/scale")),
            ("*/*/*", ("*", "*", "*")),
        ];
        for (input, expected) in table {
            let arguments: Arguments = syn::parse_str(&format!("resources = [\"{input}\"]")).expect(input);
            let rule = &arguments.resources[0];
            assert_eq!(
                (rule.group.as_str(), rule.version.as_str(), rule.resources[0].as_str()),
                expected
            );
        }
    }

    #[test]
    fn a_flag_may_be_set_to_true_or_false() {
        for (input, expected) in [
            ("", false),
            ("mutates", true),
            ("mutates = true,", true),
            ("mutates = false", false),
        ] {
            assert_eq!(
                syn::parse_str::<Arguments>(input).expect(input).mutates,
                expected,
                "{input}"
            );
        }
    }
}
