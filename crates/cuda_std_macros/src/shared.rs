//! `shared_array!`.

use std::sync::atomic::{AtomicU32, Ordering};

use proc_macro2::{Literal, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
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

/// Expands `shared_array![T; N]`: a `.shared` variable of the module, whose address the expression
/// reads.
///
/// rustc cannot place a `static` in shared memory itself. `constants` are items of the function
/// that `T` and `N` name.
pub fn expand(array: SharedArray, constants: &[&ItemConst]) -> TokenStream {
    let SharedArray { element, length } = array;
    let symbol = unique();
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

/// A name that no other array has: the crate, its version, and the number of the expansion.
///
/// `cuda_builder` recognises the array by the beginning of its name, and names it after the
/// function that uses it. A macro does not know that function. Nor does rustc give it anything
/// unique that does not depend on a file or line.
fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // One rustc compiles one crate, and cargo says which.
    let of_cargo = |key| std::env::var(key).unwrap_or_default();
    let (name, version) = (of_cargo("CARGO_CRATE_NAME"), of_cargo("CARGO_PKG_VERSION"));
    let version = version.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    format!("cuda_std_shared_{name}_{version}_{}", COUNT.fetch_add(1, Ordering::Relaxed))
}
