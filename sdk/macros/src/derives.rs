//! Implements `#[settings]` and `#[view]`, which derive traits with common defaults.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Result};

/// Derives `Deserialize`, which rejects unknown fields, and `JsonSchema`.
pub(crate) fn settings(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    refuse_arguments("settings", &arguments)?;
    let item: DeriveInput = syn::parse2(item)?;
    refuse_borrowed_fields(&item)?;
    let mut attributes = serde_attributes(&item)?;
    // `deny_unknown_fields` has an effect only on types with named fields. Enums count too, because their variants can
    // have named fields.
    let has_fields = match &item.data {
        Data::Struct(data) => matches!(data.fields, syn::Fields::Named(_)),
        Data::Enum(_) => true,
        Data::Union(_) => false,
    };
    if has_fields
        && !has_serde_attribute(&item, "deny_unknown_fields")?
        && !has_serde_attribute(&item, "transparent")?
        && !has_serde_attribute(&item, "untagged")?
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

/// Derives `Deserialize` for a partial view. Unknown fields are skipped.
pub(crate) fn view(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    refuse_arguments("view", &arguments)?;
    let item: DeriveInput = syn::parse2(item)?;
    let attributes = serde_attributes(&item)?;
    Ok(quote! {
        #[derive(::admittance_sdk::serde::Deserialize)]
        #[serde(#(#attributes),*)]
        #item
    })
}

/// Refuses settings with borrowed fields, because settings outlive the text from which they are parsed.
fn refuse_borrowed_fields(item: &DeriveInput) -> Result<()> {
    const BORROWED_MESSAGE: &str =
        "settings own their values: use `String` instead of `&str`, and `Vec` instead of a slice";
    if let Some(lifetime) = item.generics.lifetimes().next() {
        return Err(syn::Error::new_spanned(lifetime, BORROWED_MESSAGE));
    }
    let fields: Vec<&syn::Field> = match &item.data {
        Data::Struct(data) => data.fields.iter().collect(),
        Data::Enum(data) => data.variants.iter().flat_map(|variant| &variant.fields).collect(),
        Data::Union(_) => Vec::new(),
    };
    match fields.iter().find(|field| matches!(field.ty, syn::Type::Reference(_))) {
        Some(field) => Err(syn::Error::new_spanned(&field.ty, BORROWED_MESSAGE)),
        None => Ok(()),
    }
}

fn refuse_arguments(name: &str, arguments: &TokenStream) -> Result<()> {
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
    if !has_serde_attribute(item, "rename_all")? && !has_serde_attribute(item, "transparent")? {
        attributes.push(quote!(rename_all = "camelCase"));
        if matches!(item.data, Data::Enum(_)) && !has_serde_attribute(item, "rename_all_fields")? {
            attributes.push(quote!(rename_all_fields = "camelCase"));
        }
    }
    Ok(attributes)
}

fn has_serde_attribute(item: &DeriveInput, name: &str) -> Result<bool> {
    let mut has_attribute = false;
    for attribute in item.attrs.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        attribute.parse_nested_meta(|meta| {
            has_attribute |= meta.path.is_ident(name);
            // The `= value` or `(...)` after the name is skipped here, because serde checks it.
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
    Ok(has_attribute)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borrowed_fields_of_settings_are_refused() {
        for (item, is_right) in [
            (
                quote!(
                    struct A {
                        name: String,
                    }
                ),
                true,
            ),
            (
                quote!(
                    struct A<'a> {
                        name: &'a str,
                    }
                ),
                false,
            ),
            (
                quote!(
                    struct A {
                        name: &'static str,
                    }
                ),
                false,
            ),
            (
                quote!(
                    enum A {
                        B(&'static str),
                    }
                ),
                false,
            ),
            (
                quote!(
                    struct A<'a> {
                        name: Cow<'a, str>,
                    }
                ),
                false,
            ),
        ] {
            let error = settings(TokenStream::new(), item.clone()).err();
            assert_eq!(error.is_none(), is_right, "{item}: {error:?}");
            assert!(
                error.is_none_or(|error| error.to_string().contains("use `String`")),
                "{item}"
            );
        }
    }
}
