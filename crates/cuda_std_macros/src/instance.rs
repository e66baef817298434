//! The instances of a generic kernel.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Error, GenericParam, Generics, Token, Type, parenthesized};

/// `instances(f32, f64)`, or `instances((f32, u32), (f64, u64))`: the types of each.
pub struct Instances(Vec<Vec<Type>>);

impl Parse for Instances {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let content;
        parenthesized!(content in input);
        let types = Punctuated::<Type, Token![,]>::parse_terminated(&content)?;
        let types = types.into_iter().map(|ty| match ty {
            Type::Tuple(tuple) => tuple.elems.into_iter().collect(),
            one => vec![one],
        });
        Ok(Instances(types.collect()))
    }
}

/// One instance: the entry point's name, and a type for each type parameter.
pub struct Instance<'a> {
    pub entry: Ident,
    pub parameters: Vec<&'a Ident>,
    pub types: Vec<&'a Type>,
}

impl Instance<'_> {
    /// Puts the types for the type parameters of a type.
    pub fn substitute(&self, ty: TokenStream) -> TokenStream {
        // A name behind two colons, or of a lifetime, is no type parameter.
        let mut colons = 0;
        let place = |token: TokenTree| match token {
            TokenTree::Ident(ident) => {
                let is_it = |parameter: &&Ident| colons < 2 && **parameter == ident;
                let found = self.parameters.iter().position(is_it);
                colons = 0;
                match found {
                    Some(index) => {
                        let ty = self.types[index];
                        quote!(#ty)
                    }
                    None => TokenTree::Ident(ident).into(),
                }
            }
            TokenTree::Punct(punct) => {
                colons = match punct.as_char() {
                    ':' => colons + 1,
                    '\'' => 2,
                    _ => 0,
                };
                TokenTree::Punct(punct).into()
            }
            TokenTree::Group(group) => {
                let stream = self.substitute(group.stream());
                let mut replaced = Group::new(group.delimiter(), stream);
                replaced.set_span(group.span());
                TokenTree::Group(replaced).into()
            }
            other => other.into(),
        };
        ty.into_iter().flat_map(place).collect()
    }
}

/// The type parameters of a kernel.
pub fn type_parameters(generics: &Generics) -> syn::Result<Vec<&Ident>> {
    let mut names = Vec::new();
    for parameter in &generics.params {
        let GenericParam::Type(ty) = parameter else {
            let message = "a kernel is generic over types alone, of which `instances` lists those \
                           that are built";
            return Err(Error::new(parameter.span(), message));
        };
        names.push(&ty.ident);
    }
    Ok(names)
}

/// The instances of `kernel`, each with a name of its own: `scale_f32`.
pub fn of<'a>(
    kernel: &Ident,
    parameters: &[&'a Ident],
    instances: &'a Instances,
) -> syn::Result<Vec<Instance<'a>>> {
    let of_types = |types: &'a Vec<Type>| {
        if types.len() != parameters.len() {
            let message = format!("this kernel has {} type parameters", parameters.len());
            let place = types.first().map_or(kernel.span(), Spanned::span);
            return Err(Error::new(place, message));
        }
        let words = types.iter().map(|ty| {
            let text = quote!(#ty).to_string().replace("r#", "");
            text.split(|c: char| !c.is_alphanumeric())
                .filter(|word| !word.is_empty())
                .collect::<Vec<_>>()
                .join("_")
        });
        let entry = words.fold(kernel.unraw().to_string(), |name, word| format!("{name}_{word}"));
        Ok(Instance {
            entry: format_ident!("{entry}", span = kernel.span()),
            parameters: parameters.to_vec(),
            types: types.iter().collect(),
        })
    };
    instances.0.iter().map(of_types).collect()
}
