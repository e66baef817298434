//! The variants of a generic kernel.

use std::collections::BTreeSet;

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{
    ConstParam, Error, GenericArgument, GenericParam, Generics, LitInt, Token, TypeParam,
    parenthesized, token,
};

/// Independent axes; the kernel is built for their product.
///
/// An example is `variants(T = f32 | f64, (U, N) = (u8, 4) as _ | (u16, 8) as wide)`.
pub struct Variants(Vec<Axis>);

/// Generic parameters that vary together, and their alternatives.
struct Axis {
    parameters: Vec<Ident>,
    alternatives: Vec<Alternative>,
}

struct Alternative {
    values: Vec<GenericArgument>,
    /// The end of the entry point's name.
    suffix: String,
}

impl Parse for Variants {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let content;
        parenthesized!(content in input);
        let axes = content.parse_terminated(Axis::parse, Token![,])?;
        Ok(Variants(axes.into_iter().collect()))
    }
}

impl Parse for Axis {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let is_list = input.peek(token::Paren);
        let parameters = one_or_list(input, is_list)?;
        input.parse::<Token![=]>()?;
        let mut alternatives = Vec::new();
        loop {
            let alternative = Alternative::parse(input, is_list)?;
            if alternative.values.len() != parameters.len() {
                let message = format!("give {} values, one per parameter", parameters.len());
                return Err(Error::new(alternative.values[0].span(), message));
            }
            alternatives.push(alternative);
            if !input.peek(Token![|]) {
                return Ok(Axis { parameters, alternatives });
            }
            input.parse::<Token![|]>()?;
        }
    }
}

impl Alternative {
    /// `f32`, `(f32, 4)`, `f32 as word`, or `f32 as _`, which adds nothing to the name.
    fn parse(input: ParseStream<'_>, is_list: bool) -> syn::Result<Self> {
        let values: Vec<GenericArgument> = one_or_list(input, is_list)?;
        if !input.peek(Token![as]) {
            let suffix = values.iter().flat_map(words).map(|word| format!("_{word}")).collect();
            return Ok(Alternative { values, suffix });
        }
        input.parse::<Token![as]>()?;
        let suffix = match () {
            () if input.peek(Token![_]) => {
                input.parse::<Token![_]>()?;
                String::new()
            }
            // Such as 64x32.
            () if input.peek(LitInt) => format!("_{}", input.parse::<LitInt>()?),
            () => format!("_{}", Ident::parse_any(input)?.unraw()),
        };
        Ok(Alternative { values, suffix })
    }
}

/// `a`, or `(a, b)` if it is a list.
fn one_or_list<T: Parse>(input: ParseStream<'_>, is_list: bool) -> syn::Result<Vec<T>> {
    if !is_list {
        return Ok(vec![input.parse()?]);
    }
    let content;
    let parentheses = parenthesized!(content in input);
    let list = content.parse_terminated(T::parse, Token![,])?;
    if list.is_empty() {
        return Err(Error::new(
            parentheses.span.join(),
            "name a generic parameter, or give its value",
        ));
    }
    Ok(list.into_iter().collect())
}

/// The words of a type or a constant: `u8` and `4` of `[u8; 4]`.
fn words(value: &GenericArgument) -> Vec<String> {
    let text = value.to_token_stream().to_string().replace("r#", "");
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

/// One variant: the entry point's name, and a value for each generic parameter.
pub struct Variant<'a> {
    pub entry: Ident,
    generics: &'a Generics,
    parameters: Vec<&'a Ident>,
    pub values: Vec<&'a GenericArgument>,
}

impl Variant<'_> {
    /// The generic parameters as items of the entry point, whose code is not that of a call.
    pub fn declare(&self) -> TokenStream {
        let items =
            self.generics.params.iter().zip(&self.values).map(
                |(parameter, value)| match parameter {
                    GenericParam::Const(ConstParam { ident, ty, .. }) => quote! {
                        #[allow(unused)]
                        const #ident: #ty = #value;
                    },
                    GenericParam::Type(TypeParam { ident, .. }) => quote! {
                        #[allow(unused, non_camel_case_types)]
                        type #ident = #value;
                    },
                    GenericParam::Lifetime(_) => TokenStream::new(),
                },
            );
        items.collect()
    }

    /// Replaces the generic parameters in a type or an expression by their values.
    pub fn substitute(&self, tokens: TokenStream) -> TokenStream {
        // A name behind two colons, or of a lifetime, is not a generic parameter.
        let mut colons = 0;
        let place = |token: TokenTree| match token {
            TokenTree::Ident(ident) => {
                let is_it = |parameter: &&Ident| colons < 2 && **parameter == ident;
                let found = self.parameters.iter().position(is_it);
                colons = 0;
                match found {
                    Some(index) => {
                        let value = self.values[index];
                        quote!(#value)
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
        tokens.into_iter().flat_map(place).collect()
    }
}

/// The name of a kernel's generic parameter, a type or a constant.
fn name(parameter: &GenericParam) -> syn::Result<&Ident> {
    match parameter {
        GenericParam::Type(ty) => Ok(&ty.ident),
        GenericParam::Const(constant) => Ok(&constant.ident),
        GenericParam::Lifetime(_) => {
            let message = "a kernel is generic over types and constants alone, of which \
                           `variants` lists those that are built";
            Err(Error::new(parameter.span(), message))
        }
    }
}

/// The variants of `kernel`, each with a name of its own: `scale_f32`.
pub fn of<'a>(
    kernel: &Ident,
    generics: &'a Generics,
    Variants(axes): &'a Variants,
) -> syn::Result<Vec<Variant<'a>>> {
    let parameters: Vec<&Ident> = generics.params.iter().map(name).collect::<Result<_, _>>()?;
    let mut listed = BTreeSet::new();
    for parameter in axes.iter().flat_map(|axis| &axis.parameters) {
        if !parameters.contains(&parameter) {
            let message = format!("`{kernel}` has no generic parameter `{parameter}`");
            return Err(Error::new(parameter.span(), message));
        }
        if !listed.insert(parameter) {
            return Err(Error::new(parameter.span(), format!("`{parameter}` is listed twice")));
        }
    }
    if let Some(missing) = parameters.iter().find(|parameter| !listed.contains(*parameter)) {
        let message = format!("list what `{missing}` is: `variants({missing} = .. | ..)`");
        return Err(Error::new(missing.span(), message));
    }
    // Chosen alternatives, one of each axis so far.
    let mut chosen: Vec<Vec<&Alternative>> = vec![Vec::new()];
    for axis in axes {
        let with = |begin: &Vec<&'a Alternative>, next| [&begin[..], &[next]].concat();
        chosen = chosen
            .iter()
            .flat_map(|begin| axis.alternatives.iter().map(move |next| with(begin, next)))
            .collect();
    }
    let mut names = BTreeSet::new();
    let variant = |chosen: Vec<&'a Alternative>| {
        let suffixes = chosen.iter().map(|alternative| alternative.suffix.as_str());
        let entry = suffixes.fold(kernel.unraw().to_string(), |name, suffix| name + suffix);
        if !names.insert(entry.clone()) {
            let message = format!("two variants are called `{entry}`: name them by `as`");
            return Err(Error::new(kernel.span(), message));
        }
        let value = |parameter: &Ident| {
            axes.iter().zip(&chosen).find_map(|(axis, alternative)| {
                let at = axis.parameters.iter().position(|listed| listed == parameter)?;
                Some(&alternative.values[at])
            })
        };
        Ok(Variant {
            entry: Ident::new(&entry, kernel.span()),
            generics,
            values: parameters.iter().filter_map(|parameter| value(parameter)).collect(),
            parameters: parameters.clone(),
        })
    };
    chosen.into_iter().map(variant).collect()
}
