//! `shared_array!`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use proc_macro2::{Literal, Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Expr, ItemConst, Token, Type};

/// `T; N`.
pub struct SharedArray {
    pub element: Type,
    pub length: Expr,
}

impl Parse for SharedArray {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let element = input.parse()?;
        input.parse::<Token![;]>()?;
        let length = input.parse()?;
        Ok(SharedArray { element, length })
    }
}

/// Expands `shared_array![T; N]`: a `.shared` variable of the module, whose address the
/// expression reads. rustc cannot place a `static` in shared memory itself. `constants` are items of
/// the function that `T` and `N` name.
pub fn expand(array: SharedArray, constants: &[&ItemConst]) -> TokenStream {
    let SharedArray { element, length } = array;
    let symbol = unique(symbol(place(&length)));
    let declare = Literal::string(&format!(".shared .align 128 .b8 {symbol}[{{}}];"));
    let address = Literal::string(&format!("mov.u32 {{}}, {symbol};"));
    quote! {{
        #[cfg(target_arch = "nvptx64")]
        {
            // `global_asm!` is not allowed among statements, but is in a module.
            mod declaration {
                #[allow(unused_imports)]
                use super::*;
                #(#[allow(dead_code)] #constants)*
                ::core::arch::global_asm!(
                    #declare,
                    const { ::core::mem::size_of::<#element>() * { let n: ::core::primitive::usize = #length; n } },
                );
            }
            let address: ::core::primitive::u32;
            // SAFETY: reads an address; touches no memory.
            unsafe {
                ::core::arch::asm!(
                    #address,
                    out(reg32) address,
                    options(pure, nomem, nostack, preserves_flags),
                );
                ::cuda_std::shared::SharedArray::<#element, { #length }>::from_address(address)
            }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            ::cuda_std::shared::SharedArray::<#element, { #length }>::on_gpu_only()
        }
    }}
}

/// The place of the length rather than of the macro: in a macro that makes kernels, a length that
/// is an argument has a place for each of them.
fn place(length: &Expr) -> Span {
    match length {
        // An argument, in invisible brackets that have the macro's place.
        Expr::Group(argument) => place(&argument.expr),
        other => other.span(),
    }
}

/// A name for the array that is unique among all crates and does not depend on where the checkout
/// lies: the crate, the file from `src` on, and the place in it.
fn symbol(span: Span) -> String {
    let span = span.unwrap();
    // cargo says which crate it has rustc compile.
    let crate_name = std::env::var("CARGO_CRATE_NAME").unwrap_or_default();
    name(&crate_name, &span.file(), span.line(), span.column())
}

/// The name, with a number behind it from the second array of that name on: a macro that makes
/// kernels, with an array written out in it, makes one for each. One rustc compiles one crate, and
/// expands its macros in order.
fn unique(name: String) -> String {
    static NAMES: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let count = names.entry(name.clone()).or_insert(0);
    *count += 1;
    if *count == 1 { name } else { format!("{name}_{count}") }
}

fn name(crate_name: &str, file: &str, line: usize, column: usize) -> String {
    let file = file.replace('\\', "/");
    let file = match file.rsplit_once("/src/") {
        Some((_, inside)) => inside,
        None => file.strip_prefix("src/").or(file.rsplit('/').next()).unwrap_or_default(),
    };
    let name = format!("{crate_name}_{}", file.trim_end_matches(".rs"));
    let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    format!("shared_{name}_{line}_{column}")
}

#[cfg(test)]
mod tests {
    use super::{name, unique};

    #[test]
    fn no_two_arrays_have_one_name() {
        let names = ["one", "other", "one", "one", "other"].map(|name| unique(name.to_owned()));
        assert_eq!(names, ["one", "other", "one_2", "one_3", "other_2"]);
    }

    #[test]
    fn names_are_of_the_crate_and_the_file_in_it() {
        for (file, expected) in [
            ("kernels/src/lib.rs", "shared_mine_lib_4_32"),
            ("src/lib.rs", "shared_mine_lib_4_32"),
            ("/usr/src/kernels/src/a/mod.rs", "shared_mine_a_mod_4_32"),
            (r"C:\kernels\src\b\mod.rs", "shared_mine_b_mod_4_32"),
            ("/kernels/main.rs", "shared_mine_main_4_32"),
        ] {
            assert_eq!(name("mine", file, 4, 32), expected, "{file}");
        }
    }
}
