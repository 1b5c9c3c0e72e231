//! Implements `#[plugin]`: generates the description and, on WebAssembly, the exports.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, ItemImpl, Result};

use crate::arguments::{Arguments, Capability, ResourceRule};

pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let arguments: Arguments = syn::parse2(arguments)?;
    let item = parse_implementation(item)?;
    let plugin = &item.self_ty;
    let description = description_tokens(&arguments);
    Ok(quote! {
        #item

        impl ::admittance_sdk::Describe for #plugin {
            fn describe() -> ::admittance_sdk::Description {
                #description
            }
        }

        #[cfg(target_family = "wasm")]
        const _: () = {
            static PLUGIN: ::admittance_sdk::Configured<#plugin> = ::admittance_sdk::Configured::new();

            struct Component;

            impl ::admittance_sdk::bindings::Guest for Component {
                fn describe() -> ::admittance_sdk::Description {
                    <#plugin as ::admittance_sdk::Describe>::describe()
                }

                fn configure(
                    settings: ::std::string::String,
                ) -> ::core::result::Result<(), ::std::vec::Vec<::admittance_sdk::bindings::SettingsError>> {
                    PLUGIN.configure(&settings)
                }

                fn admit(
                    request: ::admittance_sdk::bindings::Request,
                ) -> ::core::result::Result<::admittance_sdk::bindings::Response, ::std::string::String> {
                    PLUGIN.admit(request)
                }
            }

            ::admittance_sdk::bindings::export!(Component with_types_in ::admittance_sdk::bindings);
        };
    })
}

fn parse_implementation(item: TokenStream) -> Result<ItemImpl> {
    const USAGE_MESSAGE: &str = "`#[plugin]` must be on `impl Plugin for YourType`";
    let tokens = item.clone();
    let item: ItemImpl = syn::parse2(item).map_err(|_| Error::new_spanned(&tokens, USAGE_MESSAGE))?;
    let Some((negative, path, _)) = &item.trait_ else {
        return Err(Error::new_spanned(&item.self_ty, USAGE_MESSAGE));
    };
    if let Some(negative) = negative {
        return Err(Error::new_spanned(negative, USAGE_MESSAGE));
    }
    if path.segments.last().is_none_or(|segment| segment.ident != "Plugin") {
        return Err(Error::new_spanned(path, USAGE_MESSAGE));
    }
    if !item.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &item.generics,
            "a component has one plugin of one type; remove the type parameters, or name a concrete type",
        ));
    }
    Ok(item)
}

fn description_tokens(arguments: &Arguments) -> TokenStream {
    let Arguments {
        name,
        version,
        summary,
        mutates,
        resources,
        capabilities,
    } = arguments;
    let name = argument_or_variable(name.as_ref(), "CARGO_PKG_NAME");
    let version = argument_or_variable(version.as_ref(), "CARGO_PKG_VERSION");
    let summary = argument_or_variable(summary.as_ref(), "CARGO_PKG_DESCRIPTION");
    let resources = resources.iter().map(
        |ResourceRule {
             group,
             version,
             resources,
         }| {
            quote! {
                ::admittance_sdk::ResourceRule {
                    api_groups: ::std::vec![::std::string::String::from(#group)],
                    api_versions: ::std::vec![::std::string::String::from(#version)],
                    resources: ::std::vec![#(::std::string::String::from(#resources)),*],
                }
            }
        },
    );
    let capabilities = capabilities.iter().map(|Capability { variant, text }| {
        quote!(::admittance_sdk::Capability::#variant(::std::string::String::from(#text)))
    });
    quote! {
        ::admittance_sdk::Description {
            name: ::std::string::String::from(#name),
            version: ::std::string::String::from(#version),
            summary: ::std::string::String::from(#summary),
            mutates: #mutates,
            resources: ::std::vec![#(#resources),*],
            settings_schema: ::admittance_sdk::settings_schema::<Self>(),
            capabilities: ::std::vec![#(#capabilities),*],
        }
    }
}

/// Returns the argument if it is given; otherwise, the corresponding value of the author's Cargo.toml.
fn argument_or_variable(argument: Option<&syn::LitStr>, variable: &str) -> TokenStream {
    match argument {
        Some(argument) => quote!(#argument),
        None => quote!(::core::env!(#variable)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misplaced_attribute_is_refused_with_a_fix() {
        let table = [
            (
                quote!(
                    struct A;
                ),
                "impl Plugin for YourType",
            ),
            (quote!(impl A {}), "impl Plugin for YourType"),
            (quote!(impl Clone for A {}), "impl Plugin for YourType"),
            (
                quote!(
                    impl<T> Plugin for A<T> {}
                ),
                "one plugin of one type",
            ),
        ];
        for (item, message) in table {
            let error = expand(TokenStream::new(), item.clone())
                .err()
                .map(|error| error.to_string());
            assert!(
                error.as_ref().is_some_and(|error| error.contains(message)),
                "{item}: {error:?}"
            );
        }
    }

    #[test]
    fn exports_exist_only_on_wasm() {
        let expanded = expand(TokenStream::new(), quote!(impl Plugin for A {}))
            .expect("it is right")
            .to_string();
        assert!(expanded.contains("cfg (target_family = \"wasm\")"), "{expanded}");
    }
}
