//! The arguments of `#[kernel]`.

use proc_macro2::{Literal, TokenStream};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Error, Expr, Ident, Token};

use crate::variants::{Variant, Variants};

/// The arguments of `#[kernel(...)]`.
pub struct Bounds {
    /// `.reqntid` or `.maxntid`, with its sizes.
    pub block: Option<(&'static str, Vec<Expr>)>,
    pub min_blocks: Option<Expr>,
    /// `.reqnctapercluster`: blocks of a cluster.
    pub cluster: Option<Vec<Expr>>,
    /// The least bytes of dynamic shared memory of a launch.
    pub dynamic_shared: Option<Expr>,
    /// The variants of a generic kernel.
    pub variants: Option<Variants>,
    /// The [`RULES`] that are named.
    pub rules: Vec<Ident>,
}

/// Rules whose violation is a build error.
const RULES: [&str; 2] = ["no_panic", "no_local_memory"];

impl Parse for Bounds {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let mut bounds = Bounds {
            block: None,
            min_blocks: None,
            cluster: None,
            dynamic_shared: None,
            variants: None,
            rules: Vec::new(),
        };
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            let is_rule = RULES.iter().any(|rule| key == rule);
            if is_rule || key == "variants" {
                match is_rule {
                    true => bounds.rules.push(key),
                    false => bounds.variants = Some(input.parse()?),
                }
                if !input.is_empty() {
                    input.parse::<Token![,]>()?;
                }
                continue;
            }
            input.parse::<Token![=]>()?;
            let value: Expr = input.parse()?;
            match key.to_string().as_str() {
                "block" | "max_block" if bounds.block.is_some() => {
                    return Err(Error::new(key.span(), "give `block` or `max_block`, once"));
                }
                "block" => bounds.block = Some((".reqntid", sizes(value)?)),
                "max_block" => bounds.block = Some((".maxntid", sizes(value)?)),
                "cluster" => bounds.cluster = Some(sizes(value)?),
                "min_blocks" => bounds.min_blocks = Some(value),
                "dynamic_shared" => bounds.dynamic_shared = Some(value),
                _ => {
                    return Err(Error::new(
                        key.span(),
                        "expected `block`, `max_block`, `min_blocks`, `cluster`, \
                         `dynamic_shared`, `variants`, `no_panic` or `no_local_memory`",
                    ));
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        if let (None, Some(min_blocks)) = (&bounds.block, &bounds.min_blocks) {
            let message = "`min_blocks` means nothing without `block` or `max_block`";
            return Err(Error::new(min_blocks.span(), message));
        }
        Ok(bounds)
    }
}

impl Bounds {
    /// The bounds of one variant: the kernel's generic parameters have their values.
    pub fn of(&self, variant: &Variant<'_>) -> syn::Result<Self> {
        let value = |size: &Expr| syn::parse2(variant.substitute(size.to_token_stream()));
        let values = |sizes: &Vec<Expr>| sizes.iter().map(value).collect::<syn::Result<Vec<_>>>();
        let block = |(word, sizes): &(_, _)| values(sizes).map(|sizes| (*word, sizes));
        Ok(Bounds {
            block: self.block.as_ref().map(block).transpose()?,
            min_blocks: self.min_blocks.as_ref().map(value).transpose()?,
            cluster: self.cluster.as_ref().map(values).transpose()?,
            dynamic_shared: self.dynamic_shared.as_ref().map(value).transpose()?,
            variants: None,
            rules: self.rules.clone(),
        })
    }
}

/// The sizes in `256` or `(32, 16)`.
fn sizes(value: Expr) -> syn::Result<Vec<Expr>> {
    match value {
        Expr::Tuple(tuple) if (1..=3).contains(&tuple.elems.len()) => {
            Ok(tuple.elems.into_iter().collect())
        }
        Expr::Tuple(tuple) => {
            Err(Error::new(tuple.span(), "a block or a cluster has one to three sizes"))
        }
        size => Ok(vec![size]),
    }
}

/// Launch bounds and rules, as PTX comments that `cuda_builder` reads.
///
/// It moves the bounds into the entry's head, for which rustc has no attribute.
pub fn directives(name: &Ident, bounds: &Bounds) -> TokenStream {
    let name = name.unraw();
    let mut lines = TokenStream::new();
    let mut directive = |text: String, sizes: &[Expr]| {
        let text = Literal::string(&text);
        lines.extend(quote! {
            #[cfg(target_arch = "nvptx64")]
            ::core::arch::global_asm!(#text, #(const { let size: ::core::primitive::u32 = #sizes; size }),*);
        });
    };
    let cluster = bounds.cluster.as_ref().map(|sizes| (".reqnctapercluster", sizes));
    let block = bounds.block.as_ref().map(|(keyword, sizes)| (*keyword, sizes));
    for (keyword, sizes) in block.into_iter().chain(cluster) {
        let holes = vec!["{}"; sizes.len()].join(", ");
        directive(format!("// cuda_std directive {name} {keyword} {holes}"), sizes);
    }
    if let Some(min_blocks) = &bounds.min_blocks {
        let text = format!("// cuda_std directive {name} .minnctapersm {{}}");
        directive(text, std::slice::from_ref(min_blocks));
    }
    for rule in &bounds.rules {
        directive(format!("// cuda_std directive {name} {rule}"), &[]);
    }
    if bounds.cluster.is_some() {
        lines.extend(quote! {
            #[cfg(all(target_arch = "nvptx64", not(target_feature = "sm_90")))]
            ::core::compile_error!("clusters of blocks take sm_90 or later");
        });
    }
    lines
}
