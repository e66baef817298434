//! `#[address_space(shared)] static mut` in a kernel.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::quote;
use syn::spanned::Spanned;
use syn::{Error, Item, ItemConst, ItemStatic, LitInt, StaticMutability, Stmt, parse_quote};

use crate::shared::{self, SharedArray};

/// A kernel's statements; each static in shared memory becomes a place behind a pointer.
pub fn expand(statements: &[Stmt]) -> syn::Result<TokenStream> {
    let mut pointers = TokenStream::new();
    let mut names = Vec::new();
    let mut rest = TokenStream::new();
    // Items that the statics' types may name.
    let constants = statements.iter().filter_map(|statement| match statement {
        Stmt::Item(Item::Const(item)) => Some(item),
        _ => None,
    });
    let constants: Vec<&ItemConst> = constants.collect();
    for statement in statements {
        match statement {
            Stmt::Item(Item::Static(item)) if is_shared(item)? => {
                pointers.extend(declare(item, &constants));
                names.push(&item.ident);
            }
            other => rest.extend(quote!(#other)),
        }
    }
    if names.is_empty() {
        return Ok(quote!(#(#statements)*));
    }
    let rest = replace(rest, &names);
    Ok(quote!(#pointers #rest))
}

fn is_shared(item: &ItemStatic) -> syn::Result<bool> {
    let Some(attribute) = item.attrs.iter().find(|a| a.path().is_ident("address_space")) else {
        return Ok(false);
    };
    let space: syn::Ident = attribute.parse_args()?;
    if space != "shared" {
        let message = "a kernel declares statics in shared memory: for constant memory there is \
                       `constant_array!`, and any other `static` lies in global memory";
        return Err(Error::new(space.span(), message));
    }
    if matches!(item.mutability, StaticMutability::None) {
        let message = "shared memory starts undefined, and threads write it: `static mut`";
        return Err(Error::new(item.static_token.span(), message));
    }
    Ok(true)
}

/// A pointer to the array that stands for the static.
fn declare(item: &ItemStatic, constants: &[&ItemConst]) -> TokenStream {
    let ItemStatic { ident, ty, expr, .. } = item;
    let length = LitInt::new("1", ident.span());
    let array = SharedArray { element: (**ty).clone(), length: parse_quote!(#length) };
    let array = shared::expand(array, constants);
    quote! {
        const _: #ty = #expr;
        #[allow(non_snake_case)]
        let #ident: *mut #ty = #array.as_mut_ptr();
    }
}

/// Replaces `NAME` by `(*NAME)`, also in the arguments of macros.
fn replace(tokens: TokenStream, names: &[&Ident]) -> TokenStream {
    let place = |token: TokenTree| match token {
        TokenTree::Ident(ident) if names.contains(&&ident) => quote!((*#ident)),
        TokenTree::Group(group) => {
            let mut replaced = Group::new(group.delimiter(), replace(group.stream(), names));
            replaced.set_span(group.span());
            TokenTree::Group(replaced).into()
        }
        other => other.into(),
    };
    tokens.into_iter().flat_map(place).collect()
}
