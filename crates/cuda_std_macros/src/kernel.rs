//! `#[kernel]` and `#[gpu_only]`.

use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Error, Expr, FnArg, Ident, ItemFn, Meta, Pat, PatType, ReturnType, Token, Type};

/// The arguments of `#[kernel(...)]`.
pub struct Bounds {
    /// `.reqntid` or `.maxntid`, with its sizes.
    block: Option<(&'static str, Vec<Expr>)>,
    min_blocks: Option<Expr>,
    /// Those of [`RULES`] that are named.
    rules: Vec<Ident>,
}

/// What a kernel can be refused for.
const RULES: [&str; 2] = ["no_panic", "no_local_memory"];

impl Parse for Bounds {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let mut bounds = Bounds { block: None, min_blocks: None, rules: Vec::new() };
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            if RULES.iter().any(|rule| key == rule) {
                bounds.rules.push(key);
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
                "min_blocks" => bounds.min_blocks = Some(value),
                _ => {
                    return Err(Error::new(
                        key.span(),
                        "expected `block`, `max_block`, `min_blocks`, `no_panic` or \
                         `no_local_memory`",
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

/// The sizes in `256` or `(32, 16)`.
fn sizes(value: Expr) -> syn::Result<Vec<Expr>> {
    match value {
        Expr::Tuple(tuple) if (1..=3).contains(&tuple.elems.len()) => {
            Ok(tuple.elems.into_iter().collect())
        }
        Expr::Tuple(tuple) => Err(Error::new(tuple.span(), "a block has one to three sizes")),
        size => Ok(vec![size]),
    }
}

/// Expands `#[kernel(bounds)]` on `function`.
pub fn expand(bounds: Bounds, function: ItemFn) -> syn::Result<TokenStream> {
    check_signature(&function)?;
    let ItemFn { attrs, vis, sig, block } = &function;
    let name = &sig.ident;

    let mut parameters = Punctuated::<TokenStream, Token![,]>::new();
    let mut rebuild = TokenStream::new();
    let (mut types, mut constants) = (Vec::new(), Vec::new());
    let mut directives = directives(name, &bounds);
    for (index, input) in sig.inputs.iter().enumerate() {
        let FnArg::Typed(input) = input else { unreachable!("check_signature refuses self") };
        let (pattern, ty) = (&*input.pat, &*input.ty);
        if let Some(constant) = GridConstant::of(input)? {
            let (parameter, value) = constant.assemble(name, parameters.len());
            let value_type = constant.0;
            let place = format_ident!("__value{index}");
            let bytes = quote!({ ::core::mem::size_of::<#value_type>() });
            parameters.push(quote!(#place: ::cuda_std::GridConstant<#bytes>));
            rebuild.extend(quote!(let _ = #place; let #pattern = #value;));
            directives.extend(parameter);
            constants.push(value_type);
            continue;
        }
        let Some(slice) = Slice::of(ty) else {
            parameters.push(quote!(#pattern: #ty));
            types.push(ty);
            continue;
        };
        let (pointer, length) = (format_ident!("__ptr{index}"), format_ident!("__len{index}"));
        let (pointer_type, value) = slice.assemble(&pointer, &length);
        parameters.push(quote!(#pointer: #pointer_type));
        parameters.push(quote!(#length: usize));
        rebuild.extend(quote!(let #pattern = #value;));
    }

    let referents = sig.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(PatType { ty, .. }) => match &**ty {
            Type::Reference(reference) => Some(&reference.elem),
            _ => None,
        },
        FnArg::Receiver(_) => None,
    });
    // A parameter without a size would be none in the PTX, and shift the numbers of the others;
    // rustc stops at one of greater alignment than 16.
    let checks = quote! {
        const _: () = {
            const fn parameter<T: ::core::marker::Copy>(alignment: usize) {
                assert!(::core::mem::size_of::<T>() > 0, "a kernel's parameter has a size");
                assert!(
                    ::core::mem::align_of::<T>() <= alignment,
                    "a kernel's parameter is aligned to at most 16 bytes, a grid constant to 64",
                );
            }
            // What a reference leads to, all threads have at once.
            const fn shared<T: ?::core::marker::Sized + ::core::marker::Sync>() {}
            #(parameter::<#types>(16);)*
            #(parameter::<#constants>(64);)*
            #(shared::<#referents>();)*
        };
    };
    if !constants.is_empty() {
        directives.extend(quote! {
            #[cfg(all(target_arch = "nvptx64", not(target_feature = "sm_89")))]
            ::core::compile_error!(
                "a `#[grid_constant]` takes PTX 7.7, which rustc writes for sm_89 and later"
            );
        });
    }
    let statements = &block.stmts;
    let mut plain = sig.clone();
    for input in &mut plain.inputs {
        if let FnArg::Typed(input) = input {
            input.attrs.retain(|attribute| !attribute.path().is_ident(GRID_CONSTANT));
        }
    }
    Ok(quote! {
        #directives

        #(#attrs)*
        #[cfg(target_arch = "nvptx64")]
        #[unsafe(no_mangle)]
        #vis unsafe extern "ptx-kernel" fn #name(#parameters) {
            #checks
            #rebuild
            #(#statements)*
        }

        #(#attrs)*
        #[cfg(not(target_arch = "nvptx64"))]
        #[allow(unused)]
        #vis #plain {
            #checks
            #(#statements)*
        }
    })
}

fn check_signature(function: &ItemFn) -> syn::Result<()> {
    let sig = &function.sig;
    if sig.unsafety.is_none() {
        let message = "a kernel must be `unsafe fn`: a wrong launch breaks what it relies on";
        return Err(Error::new(sig.fn_token.span, message));
    }
    if let ReturnType::Type(_, ty) = &sig.output {
        return Err(Error::new(ty.span(), "a kernel returns nothing: write through a pointer"));
    }
    if !sig.generics.params.is_empty() {
        let message = "a kernel cannot be generic: write one kernel per type that calls a \
                       generic function";
        return Err(Error::new(sig.generics.span(), message));
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
            // A grid constant has a message of its own.
            FnArg::Typed(typed) if typed.attrs.iter().any(|a| a.path().is_ident(GRID_CONSTANT)) => {
            }
            FnArg::Typed(typed) => check_reference(&typed.ty)?,
        }
    }
    Ok(())
}

/// Every thread gets the parameters: a `&mut` would be as many, of one place.
fn check_reference(ty: &Type) -> syn::Result<()> {
    let Type::Reference(reference) = ty else { return Ok(()) };
    let Some(mutable) = reference.mutability else { return Ok(()) };
    let instead = match &*reference.elem {
        Type::Slice(_) => "`*mut [T]`, or `*mut T`",
        _ => "`*mut T`",
    };
    let message = format!(
        "a kernel's parameter cannot be `&mut`, because all threads would have it: take {instead}"
    );
    Err(Error::new(mutable.span(), message))
}

/// A parameter of slice type, which travels as pointer and length.
struct Slice<'a> {
    element: &'a Type,
    mutable: bool,
    reference: bool,
}

impl<'a> Slice<'a> {
    fn of(ty: &'a Type) -> Option<Self> {
        let (target, mutable, reference) = match ty {
            Type::Reference(r) => (&*r.elem, r.mutability.is_some(), true),
            Type::Ptr(p) => (&*p.elem, p.mutability.is_some(), false),
            _ => return None,
        };
        let Type::Slice(slice) = target else { return None };
        Some(Slice { element: &slice.elem, mutable, reference })
    }

    /// The type of the pointer parameter, and the expression that makes the slice.
    fn assemble(&self, pointer: &Ident, length: &Ident) -> (TokenStream, TokenStream) {
        let element = self.element;
        let pointer_type =
            if self.mutable { quote!(*mut #element) } else { quote!(*const #element) };
        let value = match (self.reference, self.mutable) {
            // The launch contract of a kernel with a slice is that the host passes a device
            // pointer and the length of what it points to. Hosts pass null for no elements,
            // which a reference must not be.
            (true, _) => quote! {
                if #length == 0 {
                    &[] as &[#element]
                } else {
                    // SAFETY: the host passes a valid pointer and length; see `#[kernel]`.
                    unsafe { ::core::slice::from_raw_parts(#pointer, #length) }
                }
            },
            (false, false) => quote!(::core::ptr::slice_from_raw_parts(#pointer, #length)),
            (false, true) => quote!(::core::ptr::slice_from_raw_parts_mut(#pointer, #length)),
        };
        (pointer_type, value)
    }
}

/// The attribute of a parameter that stays where the launch put it.
const GRID_CONSTANT: &str = "grid_constant";

/// A parameter `#[grid_constant] name: &T`: the launch passes a `T`, and the kernel sees it in
/// place, as CUDA's `const __grid_constant__ T`.
struct GridConstant<'a>(&'a Type);

impl<'a> GridConstant<'a> {
    fn of(input: &'a PatType) -> syn::Result<Option<Self>> {
        let mut attributes =
            input.attrs.iter().filter(|attribute| attribute.path().is_ident(GRID_CONSTANT));
        let Some(attribute) = attributes.next() else { return Ok(None) };
        if !matches!(attribute.meta, Meta::Path(_)) {
            return Err(Error::new(attribute.span(), "`#[grid_constant]` takes no arguments"));
        }
        if let Some(second) = attributes.next() {
            return Err(Error::new(second.span(), "one `#[grid_constant]` is enough"));
        }
        let ty = &*input.ty;
        let message = match ty {
            Type::Reference(r) if r.mutability.is_some() => {
                "nothing may write a `#[grid_constant]`: take it as `&T`"
            }
            Type::Reference(r) => match &*r.elem {
                Type::Slice(_) => {
                    "a `#[grid_constant]` is passed by value, so its size must be known: take an \
                     array, or a slice without the attribute"
                }
                _ => return Ok(Some(GridConstant(&r.elem))),
            },
            _ => "a `#[grid_constant]` is a `&T`: the launch passes the `T`",
        };
        Err(Error::new(ty.span(), message))
    }

    /// The directive that aligns the parameter, and the expression that is the reference.
    fn assemble(&self, kernel: &Ident, index: usize) -> (TokenStream, TokenStream) {
        let ty = self.0;
        // Tensor maps need that much.
        let align =
            Literal::string(&format!("// cuda_std directive {kernel} .param {index} .align 64"));
        // LLVM would copy the parameter to local memory to take its address.
        let address = Literal::string(&format!("cvta.param.u64 {{}}, {kernel}_param_{index};"));
        let directive = quote! {
            #[cfg(target_arch = "nvptx64")]
            ::core::arch::global_asm!(#align);
        };
        let value = quote! {{
            let address: *const #ty;
            // SAFETY: the parameter of that number is a value of this type, which nothing
            // writes and which lives as long as the launch.
            unsafe {
                ::core::arch::asm!(
                    #address,
                    out(reg64) address,
                    options(pure, nomem, nostack, preserves_flags),
                );
                &*address
            }
        }};
        (directive, value)
    }
}

/// Launch bounds and rules, as PTX comments that `cuda_builder` reads: it moves the former into
/// the entry's head, for which rustc has no attribute.
fn directives(name: &Ident, bounds: &Bounds) -> TokenStream {
    let mut lines = TokenStream::new();
    let mut directive = |text: String, sizes: &[Expr]| {
        let text = Literal::string(&text);
        lines.extend(quote! {
            #[cfg(target_arch = "nvptx64")]
            ::core::arch::global_asm!(#text, #(const { let size: u32 = #sizes; size }),*);
        });
    };
    if let Some((keyword, sizes)) = &bounds.block {
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
    lines
}

/// Expands `#[gpu_only]` on `function`.
pub fn gpu_only(function: ItemFn) -> TokenStream {
    let ItemFn { attrs, vis, sig, block } = &function;
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

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_str;

    /// What `#[kernel(bounds)]` makes of a function, without spaces, or says about it.
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
            "fnk(__ptr0:*constf32,__len0:usize,__value1:::cuda_std::GridConstant<{::core::mem::size_of::<Map>()}>,y:*mutf32)",
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
        let text = kernel("block = (32, ROWS), min_blocks = 2", "unsafe fn k() {}").unwrap();
        assert!(text.contains("\"//cuda_stddirectivek.reqntid{},{}\""), "{text}");
        assert!(text.contains("letsize:u32=ROWS;size"), "{text}");
        assert!(text.contains("\"//cuda_stddirectivek.minnctapersm{}\""), "{text}");
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
            ("", "fn k() {}", "must be `unsafe fn`"),
            ("", "unsafe fn k() -> u32 { 0 }", "returns nothing"),
            ("", "unsafe fn k<T>(x: T) {}", "cannot be generic"),
            ("", "unsafe fn k<'a>(#[grid_constant] map: &'a Map) {}", "cannot be generic"),
            ("", "async unsafe fn k() {}", "neither `async` nor `const`"),
            ("", "unsafe extern \"C\" fn k() {}", "sets the ABI"),
            ("", "unsafe fn k(&self) {}", "no `self`"),
            ("", "unsafe fn k(x: &mut [f32]) {}", "take `*mut [T]`, or `*mut T`"),
            ("", "unsafe fn k(x: &mut f32) {}", "take `*mut T`"),
            ("block = 32, max_block = 64", "unsafe fn k() {}", "once"),
            ("block = (1, 2, 3, 4)", "unsafe fn k() {}", "one to three sizes"),
            ("min_blocks = 2", "unsafe fn k() {}", "means nothing"),
            ("threads = 32", "unsafe fn k() {}", "expected `block`"),
        ] {
            let error = kernel(bounds, function).unwrap_err();
            assert!(error.contains(message), "{bounds} {function}: {error}");
        }
    }
}
