//! `#[settings]` and `#[view]`: derives with common defaults.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Result};

/// `Deserialize` and `JsonSchema`; unknown fields are mistakes.
pub(crate) fn settings(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    no_arguments("settings", &arguments)?;
    let item: DeriveInput = syn::parse2(item)?;
    let mut attributes = serde_attributes(&item)?;
    // On an enum it also rejects unknown fields of struct variants, as intended; on a unit
    // or tuple struct it has no effect.
    let has_fields = match &item.data {
        Data::Struct(data) => matches!(data.fields, syn::Fields::Named(_)),
        Data::Enum(_) => true,
        Data::Union(_) => false,
    };
    if has_fields
        && !has(&item, "deny_unknown_fields")?
        && !has(&item, "transparent")?
        && !has(&item, "untagged")?
    {
        attributes.push(quote!(deny_unknown_fields));
    }
    Ok(quote! {
        #[derive(::admittance_sdk::serde::Deserialize, ::admittance_sdk::schemars::JsonSchema)]
        #[serde(#(#attributes),*)]
        #[schemars(crate = "::admittance_sdk::schemars")]
        #item
    })
}

/// `Deserialize`; unknown fields are skipped.
pub(crate) fn view(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    no_arguments("view", &arguments)?;
    let item: DeriveInput = syn::parse2(item)?;
    let attributes = serde_attributes(&item)?;
    Ok(quote! {
        #[derive(::admittance_sdk::serde::Deserialize)]
        #[serde(#(#attributes),*)]
        #item
    })
}

fn no_arguments(name: &str, arguments: &TokenStream) -> Result<()> {
    if arguments.is_empty() {
        return Ok(());
    }
    let message = format!("`#[{name}]` takes no arguments; write `#[serde(...)]` on the type");
    Err(syn::Error::new_spanned(arguments, message))
}

fn serde_attributes(item: &DeriveInput) -> Result<Vec<TokenStream>> {
    if let Data::Union(data) = &item.data {
        return Err(syn::Error::new_spanned(
            data.union_token,
            "serde supports structs and enums, not unions",
        ));
    }
    let mut attributes = vec![quote!(crate = "::admittance_sdk::serde")];
    if !has(item, "rename_all")? && !has(item, "transparent")? {
        attributes.push(quote!(rename_all = "camelCase"));
        if matches!(item.data, Data::Enum(_)) && !has(item, "rename_all_fields")? {
            attributes.push(quote!(rename_all_fields = "camelCase"));
        }
    }
    Ok(attributes)
}

/// Whether the author wrote this in a `#[serde(...)]` of the type.
fn has(item: &DeriveInput, name: &str) -> Result<bool> {
    let mut found = false;
    for attribute in item
        .attrs
        .iter()
        .filter(|attribute| attribute.path().is_ident("serde"))
    {
        attribute.parse_nested_meta(|meta| {
            found |= meta.path.is_ident(name);
            // Skips `= value` or `(...)`, which serde validates.
            if meta.input.peek(syn::Token![=]) {
                let _: syn::Expr = meta.value()?.parse()?;
            } else if meta.input.peek(syn::token::Paren) {
                let content;
                syn::parenthesized!(content in meta.input);
                let _: TokenStream = content.parse()?;
            }
            Ok(())
        })?;
    }
    Ok(found)
}
