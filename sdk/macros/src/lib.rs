//! The attribute macros of `admittance-sdk`. Use them through that crate, where their examples are tested.

mod arguments;
mod derives;
mod export;

use proc_macro::TokenStream;

/// Makes an implementation of `Plugin` the plugin of its crate.
///
/// The crate exports the contract's functions on WebAssembly; the type implements `Describe` on all targets. Name,
/// version and summary default to those in the crate's `Cargo.toml`. A crate contains one plugin.
///
/// | argument | meaning | default |
/// |---|---|---|
/// | `name = "..."` | short, in lower case with hyphens | the crate's name |
/// | `version = "..."` | the plugin's version | the crate's |
/// | `summary = "..."` | one or two sentences for the operator | the crate's description |
/// | `mutates` | it may return `patch` or `replace` | it does not |
/// | `resources = ["v1/pods", "apps/v1/deployments"]` | supported resources: version and resource, with the group before them if there is one; `*` stands for any | everything |
/// | `capabilities = [cluster("v1/Node"), http("https://policy.example.com"), environment("REGION")]` | capabilities that it requests | none |
///
/// ```
/// use admittance_sdk::prelude::*;
/// use admittance_sdk::{Capability, testing};
///
/// struct Zones;
///
/// #[plugin(
///     name = "zones",
///     summary = "Spreads Pods over zones.",
///     mutates,
///     resources = ["v1/pods", "apps/v1/deployments", "apps/v1/statefulsets"],
///     capabilities = [cluster("v1/Node")],
/// )]
/// impl Plugin for Zones {
///     type Settings = NoSettings;
///     fn configure(_: NoSettings) -> Result<Self, SettingsErrors> {
///         Ok(Self)
///     }
///     fn admit(&self, _: &Request) -> Result<Response, Error> {
///         Ok(Response::allow())
///     }
/// }
///
/// # fn main() {
/// let description = testing::describe::<Zones>();
/// assert_eq!(description.name, "zones");
/// assert!(description.mutates);
/// assert_eq!(description.capabilities, [Capability::Cluster("v1/Node".into())]);
/// let [core, apps] = description.resources.as_slice() else { panic!("a rule for each group and version") };
/// assert_eq!((core.api_groups[0].as_str(), core.resources[0].as_str()), ("", "pods"));
/// assert_eq!(apps.resources, ["deployments", "statefulsets"]);
/// # }
/// ```
///
/// Errors are reported at the place of the mistake:
///
/// ```compile_fail
/// struct NotAPlugin;
///
/// #[admittance_sdk::plugin]
/// impl NotAPlugin {} // error: `#[plugin]` must be on `impl Plugin for YourType`
/// ```
#[proc_macro_attribute]
pub fn plugin(arguments: TokenStream, item: TokenStream) -> TokenStream {
    export::expand(arguments.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Makes a type the settings of a plugin: derives `Deserialize` and `JsonSchema`.
///
/// Fields are written in `camelCase`, and unknown fields are mistakes, so that misspelt ones are found. Your own
/// `#[serde(...)]` attributes take precedence. Doc comments become the schema's descriptions.
///
/// ```
/// use admittance_sdk::prelude::*;
///
/// #[settings]
/// #[derive(Debug, Default)]
/// struct Settings {
///     /// Registries that images may come from.
///     #[serde(default)]
///     allowed_registries: Vec<String>,
///     mode: Option<Mode>,
/// }
///
/// #[settings]
/// #[derive(Debug)]
/// enum Mode {
///     Strict,
///     Lenient,
/// }
///
/// use admittance_sdk::serde_json;
/// let settings: Settings = serde_json::from_str(r#"{"allowedRegistries":["a"],"mode":"strict"}"#).unwrap();
/// assert_eq!(settings.allowed_registries, ["a"]);
/// assert!(serde_json::from_str::<Settings>(r#"{"allowedRegistry":["a"]}"#).is_err());
/// ```
#[proc_macro_attribute]
pub fn settings(arguments: TokenStream, item: TokenStream) -> TokenStream {
    derives::settings(arguments.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Makes a type a partial view of an object: derives `Deserialize`.
///
/// Fields are written in `camelCase`, and unknown fields are skipped. Strings borrow from the
/// request with `#[serde(borrow)]` and `Cow<'a, str>`.
///
/// ```
/// use admittance_sdk::prelude::*;
///
/// #[view]
/// struct Pod {
///     spec: PodSpec,
/// }
///
/// #[view]
/// struct PodSpec {
///     host_network: Option<bool>,
/// }
///
/// use admittance_sdk::serde_json;
/// let pod: Pod = serde_json::from_str(r#"{"kind":"Pod","spec":{"hostNetwork":true,"containers":[]}}"#).unwrap();
/// assert_eq!(pod.spec.host_network, Some(true));
/// ```
#[proc_macro_attribute]
pub fn view(arguments: TokenStream, item: TokenStream) -> TokenStream {
    derives::view(arguments.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
