//! `#[gpu_only]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ItemFn;

/// Expands `#[gpu_only]` on `function`.
pub fn expand(function: ItemFn) -> TokenStream {
    let ItemFn { attrs, vis, sig, block, .. } = &function;
    let message = format!("`{}` runs on the GPU only", sig.ident);
    quote! {
        #(#attrs)*
        #[cfg(target_arch = "nvptx64")]
        #vis #sig #block

        #(#attrs)*
        #[cfg(not(target_arch = "nvptx64"))]
        #[allow(unused_variables)]
        #vis #sig {
            ::core::unimplemented!(#message)
        }
    }
}
