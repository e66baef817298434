//! `#[kernel]`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Error, FnArg, Ident, ItemFn, Pat, ReturnType, Safety};

use crate::bounds::{Bounds, directives};
use crate::host::{self, Contract, HostParameters};
use crate::parameter::{GRID_CONSTANT, Parameter, assemble_grid_constant};
use crate::space;
use crate::variants;

/// Expands `#[kernel(bounds)]` on `function`.
pub fn expand(bounds: Bounds, function: ItemFn) -> syn::Result<TokenStream> {
    check_signature(&function, bounds.variants.is_some())?;
    let ItemFn { attrs, vis, sig, block, .. } = &function;
    let name = &sig.ident;
    let statements = space::expand(&block.stmts)?;
    let mut plain = sig.clone();
    for input in &mut plain.inputs {
        if let FnArg::Typed(input) = input {
            input.attrs.retain(|attribute| !attribute.path().is_ident(GRID_CONSTANT));
        }
    }
    let declaration = host::declare(vis, name, &sig.generics);
    let Some(variants) = &bounds.variants else {
        let entry = Entry::new(name, sig.inputs.iter(), &bounds)?;
        let contract = contract(name, &function, &bounds);
        let methods = host::methods(name, &[], &contract, &entry.host);
        let checks = &entry.checks;
        let entry = entry.function(name, &quote!(no_mangle), &function, &statements);
        return Ok(quote! {
            #(#attrs)*
            #entry

            #(#attrs)*
            #[cfg(not(target_arch = "nvptx64"))]
            #[allow(unused)]
            #vis #plain {
                #checks
                #statements
            }

            #declaration
            #methods
        });
    };

    // On the GPU the function exists for its name, and each entry point has the body.
    let mut expanded = quote! {
        #(#attrs)*
        #[cfg(not(target_arch = "nvptx64"))]
        #[allow(unused)]
        #vis #plain {
            #statements
        }

        #(#attrs)*
        #[cfg(target_arch = "nvptx64")]
        #[allow(unused)]
        #vis #plain {
            const { ::core::panic!("a kernel with variants is launched, not called") }
        }

        #declaration
    };
    for variant in variants::of(name, &sig.generics, variants)? {
        let bounds = bounds.of(&variant)?;
        let mut inputs = sig.inputs.clone();
        for input in &mut inputs {
            if let FnArg::Typed(input) = input {
                let ty = &input.ty;
                *input.ty = syn::parse2(variant.substitute(quote!(#ty)))?;
            }
        }
        let entry = Entry::new(&variant.entry, inputs.iter(), &bounds)?;
        let contract = contract(&variant.entry, &function, &bounds);
        expanded.extend(host::methods(name, &variant.values, &contract, &entry.host));
        let (values, parameters) = (&variant.values, variant.declare());
        // Expanded again for each variant, because a static in shared memory has one name in the
        // PTX.
        let statements = space::expand(&block.stmts)?;
        let body = quote!(#parameters #statements);
        // One variant may have the name of the kernel itself.
        let symbol = variant.entry.to_string();
        let own_name = format_ident!("__{symbol}");
        let function = entry.function(&own_name, &quote!(export_name = #symbol), &function, &body);
        expanded.extend(quote! {
            #[allow(missing_docs, clippy::missing_safety_doc)]
            #function

            // Elsewhere the values are checked, though nothing calls the kernel.
            #[cfg(not(target_arch = "nvptx64"))]
            const _: () = {
                let _ = #name::<#(#values),*>;
            };
        });
    }
    Ok(expanded)
}

/// The conditions that a launch keeps to.
fn contract<'a>(entry: &'a Ident, function: &ItemFn, bounds: &Bounds) -> Contract<'a> {
    let block = |keyword| match &bounds.block {
        Some((found, sizes)) if *found == keyword => {
            let ones = vec![quote!(1); 3 - sizes.len()];
            quote!(::core::option::Option::Some([#(#sizes,)* #(#ones),*]))
        }
        _ => quote!(::core::option::Option::None),
    };
    let dynamic_shared = match &bounds.dynamic_shared {
        Some(bytes) => quote!(#bytes),
        None => quote!(0),
    };
    Contract {
        entry,
        is_unsafe: matches!(function.sig.safety, Safety::Unsafe(_)),
        block: block(".reqntid"),
        max_block: block(".maxntid"),
        dynamic_shared,
    }
}

/// An entry point of the PTX.
struct Entry {
    /// The PTX parameters, as the launch passes them.
    parameters: Vec<TokenStream>,
    /// Makes the function's parameters from them.
    rebuild: TokenStream,
    /// Compile-time checks of the parameters.
    checks: TokenStream,
    directives: TokenStream,
    host: HostParameters,
}

impl Entry {
    fn new<'a>(
        name: &Ident,
        inputs: impl Iterator<Item = &'a FnArg>,
        bounds: &Bounds,
    ) -> syn::Result<Self> {
        let mut parameters = Vec::new();
        let mut rebuild = TokenStream::new();
        let (mut types, mut constants) = (Vec::new(), Vec::new());
        let (mut referents, mut sent) = (Vec::new(), Vec::new());
        let mut directives = directives(name, bounds);
        let mut host = HostParameters::default();
        for (index, input) in inputs.enumerate() {
            let FnArg::Typed(input) = input else { unreachable!("check_signature refuses self") };
            let (pattern, ty) = (&*input.pat, &*input.ty);
            let parameter = Parameter::of(input)?;
            host.push(input, index, &parameter);
            referents.extend(parameter.shared());
            match parameter {
                Parameter::GridConstant(value_type) => {
                    let (align, value) = assemble_grid_constant(value_type, name, parameters.len());
                    let place = format_ident!("__value{index}");
                    let bytes = quote!({ ::core::mem::size_of::<#value_type>() });
                    parameters.push(quote!(#place: ::cuda_std::GridConstant<#bytes>));
                    rebuild.extend(quote!(let _ = #place; let #pattern = #value;));
                    directives.extend(align);
                    constants.push(value_type);
                    continue;
                }
                Parameter::Value(ty) => {
                    let place = format_ident!("__value{index}");
                    parameters.push(quote!(#place: ::cuda_std::ByValue<#ty>));
                    rebuild.extend(quote!(let #pattern = #place.0;));
                    types.push(ty);
                    continue;
                }
                Parameter::Disjoint(element) => sent.push(element),
                _ => {}
            }
            let (pointer, length) = (format_ident!("__ptr{index}"), format_ident!("__len{index}"));
            let Some((pointer_type, value)) = parameter.assemble_slice(&pointer, &length) else {
                parameters.push(quote!(#pattern: #ty));
                types.push(ty);
                continue;
            };
            parameters.push(quote!(#pointer: #pointer_type));
            parameters.push(quote!(#length: ::core::primitive::usize));
            rebuild.extend(quote!(let #pattern = #value;));
        }
        if !constants.is_empty() {
            directives.extend(quote! {
                #[cfg(all(target_arch = "nvptx64", not(target_feature = "sm_89")))]
                ::core::compile_error!(
                    "a `#[grid_constant]` takes PTX 7.7, which rustc writes for sm_89 and later"
                );
            });
        }
        // A parameter without a size would not exist in the PTX, and would shift the numbers of the
        // others. rustc stops at one of greater alignment than 16.
        let checks = quote! {
            const _: () = {
                const fn parameter<T: ::core::marker::Copy>(alignment: ::core::primitive::usize) {
                    ::core::assert!(
                        ::core::mem::size_of::<T>() > 0,
                        "a kernel's parameter has a size",
                    );
                    ::core::assert!(
                        ::core::mem::align_of::<T>() <= alignment,
                        "a kernel's parameter is aligned to at most 16 bytes, a grid constant to 64",
                    );
                }
                // All threads have the target of a reference at once.
                const fn shared<T: ?::core::marker::Sized + ::core::marker::Sync>() {}
                // What one thread has came from the host.
                const fn sent<T: ::core::marker::Send>() {}
                #(parameter::<#types>(16);)*
                #(parameter::<#constants>(64);)*
                #(shared::<#referents>();)*
                #(sent::<#sent>();)*
            };
        };
        Ok(Entry { parameters, rebuild, checks, directives, host })
    }

    /// The function `name`, which exists on the GPU only, behind its directives.
    ///
    /// `symbol` is the attribute that names it in the PTX.
    fn function(
        &self,
        name: &Ident,
        symbol: &TokenStream,
        kernel: &ItemFn,
        body: &TokenStream,
    ) -> TokenStream {
        let Entry { parameters, rebuild, checks, directives, .. } = self;
        let (vis, safety) = (&kernel.vis, &kernel.sig.safety);
        quote! {
            #[cfg(target_arch = "nvptx64")]
            #[unsafe(#symbol)]
            #vis #safety extern "ptx-kernel" fn #name(#(#parameters),*) {
                #checks
                #rebuild
                #body
            }

            #directives
        }
    }
}

fn check_signature(function: &ItemFn, has_variants: bool) -> syn::Result<()> {
    let sig = &function.sig;
    if let ReturnType::Type(_, ty) = &sig.output {
        return Err(Error::new(ty.span(), "a kernel returns nothing: write through a pointer"));
    }
    if sig.generics.params.is_empty() == has_variants {
        let (place, message) = match has_variants {
            true => (sig.ident.span(), "a kernel that is not generic has no `variants`"),
            false => (
                sig.generics.span(),
                "a generic kernel lists what it is built for: \
                 `#[kernel(variants(T = f32 | f64))]`",
            ),
        };
        return Err(Error::new(place, message));
    }
    if let Some(qualifier) = sig.asyncness.map(|t| t.span).or(sig.constness.map(|t| t.span)) {
        return Err(Error::new(qualifier, "a kernel is neither `async` nor `const`"));
    }
    if let Some(abi) = &sig.abi {
        return Err(Error::new(abi.span(), "`#[kernel]` sets the ABI"));
    }
    for input in &sig.inputs {
        match input {
            FnArg::Receiver(receiver) => {
                return Err(Error::new(receiver.span(), "a kernel has no `self`"));
            }
            FnArg::Typed(typed) if !matches!(&*typed.pat, Pat::Ident(_) | Pat::Wild(_)) => {
                return Err(Error::new(typed.pat.span(), "a kernel's parameter needs a name"));
            }
            FnArg::Typed(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_str;

    /// The expansion of `#[kernel(bounds)]` on a function, without spaces, or its error.
    fn kernel(bounds: &str, function: &str) -> Result<String, String> {
        let expanded = parse_str(bounds).and_then(|bounds| expand(bounds, parse_str(function)?));
        let squeeze = |tokens: TokenStream| tokens.to_string().replace(' ', "");
        expanded.map(squeeze).map_err(|error| error.to_string())
    }

    #[test]
    fn a_grid_constant_is_passed_by_value_and_numbered_as_in_the_ptx() {
        let text = kernel("", "unsafe fn k(x: &[f32], #[grid_constant] map: &Map, y: *mut f32) {}")
            .unwrap();
        let (gpu, host) = text.split_once("#[cfg(not(target_arch").unwrap();
        // The slice is parameters 0 and 1.
        for part in [
            "fnk(__ptr0:*constf32,__len0:::core::primitive::usize,__value1:::cuda_std::GridConstant<{::core::mem::size_of::<Map>()}>,y:*mutf32)",
            "\"//cuda_stddirectivek.param2.align64\"",
            "\"cvta.param.u64{},k_param_2;\"",
            "letmap={letaddress:*constMap;",
            "not(target_feature=\"sm_89\")",
            "parameter::<Map>(64);",
        ] {
            assert!(gpu.contains(part), "{part}: {gpu}");
        }
        assert!(host.contains("unsafefnk(x:&[f32],map:&Map,y:*mutf32)"), "{host}");
        assert!(host.contains("parameter::<Map>(64);"), "{host}");
    }

    #[test]
    fn launch_bounds_become_directives() {
        let bounds = "block = (32, ROWS), min_blocks = 2, cluster = (2, 1)";
        let text = kernel(bounds, "unsafe fn k() {}").unwrap();
        assert!(text.contains("\"//cuda_stddirectivek.reqnctapercluster{},{}\""), "{text}");
        assert!(text.contains("\"//cuda_stddirectivek.reqntid{},{}\""), "{text}");
        assert!(text.contains("letsize:::core::primitive::u32=ROWS;size"), "{text}");
        assert!(text.contains("\"//cuda_stddirectivek.minnctapersm{}\""), "{text}");
    }

    #[test]
    fn a_generic_kernel_has_an_entry_for_each_variant() {
        let text =
            kernel("variants(T = f32 | [u8; 4])", "fn k<T: Copy>(x: &[T], _: T) {}").unwrap();
        for part in [
            "fnk<T:Copy>(x:&[T],_:T){}",
            "extern\"ptx-kernel\"fn__k_f32(__ptr0:*constf32,__len0:::core::primitive::usize,__value1:::cuda_std::ByValue<f32>)",
            "typeT=f32;",
            "fn__k_u8_4(__ptr0:*const[u8;4],__len0:::core::primitive::usize,__value1:::cuda_std::ByValue<[u8;4]>)",
            "#[unsafe(export_name=\"k_u8_4\")]",
            "impl<'m>k<'m,f32>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn variants_are_the_product_of_their_axes() {
        let text = kernel(
            "block = N * 32, variants((T, IS_HALF) = (f32, false) as _ | (u16, true) as half, N = 1 | 2 as 2x)",
            "fn k<const N: u32, T: Copy, const IS_HALF: bool>(x: &[T], y: [u8; N]) {}",
        )
        .unwrap();
        for part in [
            "fnk<constN:u32,T:Copy,constIS_HALF:bool>(x:&[T],y:[u8;N]){}",
            "constN:u32=1;",
            "kernel:\"k_1\"",
            "kernel:\"k_2x\"",
            "kernel:\"k_half_1\"",
            "constIS_HALF:bool=true;",
            "#[unsafe(export_name=\"k_half_2x\")]",
            "const_:()={let_=k::<2,u16,true>;};",
            "fn__k_half_2x(__ptr0:*constu16,__len0:::core::primitive::usize,__value1:::cuda_std::ByValue<[u8;2]>)",
            "letsize:::core::primitive::u32=2*32;size",
            "structk<'m,constN:u32,T,constIS_HALF:bool>",
            "PhantomData<(T,)>",
            "impl<'m>k<'m,2,u16,true>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text =
            kernel("variants(A = false as _ | true as a)", "fn k<const A: bool>() {}").unwrap();
        assert!(text.contains("#[unsafe(export_name=\"k\")]"), "{text}");
    }

    #[test]
    fn any_name_will_do() {
        let text = kernel("max_block = 64", "fn r#match(r#in: f32) {}").unwrap();
        for part in [
            "\"//cuda_stddirectivematch.maxntid{}\"",
            "extern\"ptx-kernel\"fnr#match(__value0:::cuda_std::ByValue<f32>)",
            "letr#in=__value0.0;",
            "kernel:\"match\"",
            "structr#match<'m>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let function = "fn r#move<m: Copy>(m: for<'m> fn(&'m m), y: other::m, r#move: &[m]) {}";
        let text = kernel("variants(m = r#dyn)", function).unwrap();
        for part in [
            "fn__move_dyn(__value0:::cuda_std::ByValue<for<'m>fn(&'mr#dyn)>",
            "__value1:::cuda_std::ByValue<other::m>,__ptr2:*constr#dyn",
            "structr#move<'m,m>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn wrong_grid_constants_are_refused() {
        for (parameter, message) in [
            ("#[grid_constant] map: Map", "is a `&T`"),
            ("#[grid_constant] map: *const Map", "is a `&T`"),
            ("#[grid_constant] map: &mut Map", "take it as `&T`"),
            ("#[grid_constant] map: &[Map]", "take an array"),
            ("#[grid_constant(64)] map: &Map", "takes no arguments"),
            ("#[grid_constant] #[grid_constant] map: &Map", "one `#[grid_constant]`"),
            ("#[grid_constant] Map(map): &Map", "needs a name"),
        ] {
            let error = kernel("", &format!("unsafe fn k({parameter}) {{}}")).unwrap_err();
            assert!(error.contains(message), "{parameter}: {error}");
        }
    }

    #[test]
    fn wrong_kernels_are_refused() {
        for (bounds, function, message) in [
            ("variants(T = f32)", "unsafe fn k() {}", "has no `variants`"),
            (
                "variants(T = f32)",
                "unsafe fn k<'a>(x: &'a u32) {}",
                "over types and constants alone",
            ),
            ("variants((T) = (f32, u32))", "unsafe fn k<T>(x: T) {}", "give 1 values"),
            ("variants(T = f32, N = 1)", "unsafe fn k<T>(x: T) {}", "no generic parameter `N`"),
            ("variants(T = f32, T = u8)", "unsafe fn k<T>(x: T) {}", "listed twice"),
            ("variants(T = f32)", "unsafe fn k<T, const N: u32>(x: T) {}", "list what `N` is"),
            ("variants(T = f32 as _ | u8 as _)", "unsafe fn k<T>(x: T) {}", "are called `k`"),
            ("", "unsafe fn k() -> u32 { 0 }", "returns nothing"),
            ("", "unsafe fn k<T>(x: T) {}", "lists what"),
            ("", "unsafe fn k<'a>(#[grid_constant] map: &'a Map) {}", "lists what"),
            ("", "async unsafe fn k() {}", "neither `async` nor `const`"),
            ("", "unsafe extern \"C\" fn k() {}", "sets the ABI"),
            ("", "unsafe fn k(&self) {}", "no `self`"),
            ("", "unsafe fn k(x: &mut [f32]) {}", "take `DisjointSlice<T>`"),
            ("", "fn k(x: &'static [f32]) {}", "leave out the lifetime"),
            ("", "fn k(#[grid_constant] x: &'static Map) {}", "leave out the lifetime"),
            (
                "",
                "unsafe fn k() { #[address_space(constant)] static X: u32 = 0; }",
                "constant_array!",
            ),
            ("", "unsafe fn k() { #[address_space(shared)] static X: u32 = 0; }", "static mut"),
            ("", "unsafe fn k(x: &mut f32) {}", "take `*mut T`"),
            ("block = 32, max_block = 64", "unsafe fn k() {}", "once"),
            ("block = (1, 2, 3, 4)", "unsafe fn k() {}", "one to three sizes"),
            ("cluster = ()", "unsafe fn k() {}", "one to three sizes"),
            ("min_blocks = 2", "unsafe fn k() {}", "means nothing"),
            ("threads = 32", "unsafe fn k() {}", "expected `block`"),
        ] {
            let error = kernel(bounds, function).unwrap_err();
            assert!(error.contains(message), "{bounds} {function}: {error}");
        }
    }
}
