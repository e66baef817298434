//! A kernel's parameters, in the PTX and on the host.

use proc_macro2::{Literal, TokenStream};
use quote::quote;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Error, GenericArgument, Ident, Meta, PatType, PathArguments, PointerMutability, Type};

/// The attribute of a parameter that stays where the launch put it.
pub const GRID_CONSTANT: &str = "grid_constant";

/// A parameter, by how the launch passes it.
pub enum Parameter<'a> {
    /// `#[grid_constant] name: &T`: the launch passes a `T`, and the kernel sees it in place, as
    /// CUDA's `const __grid_constant__ T`.
    GridConstant(&'a Type),
    /// A slice, which travels as pointer and length.
    Slice { element: &'a Type, mutable: bool, reference: bool },
    /// A `DisjointSlice`, which travels as a slice does.
    Disjoint(&'a Type),
    /// `&T`, which is a pointer.
    Reference(&'a Type),
    /// `*const T` or `*mut T`.
    Pointer { element: &'a Type, mutable: bool },
    /// Anything else, by value.
    Value(&'a Type),
}

impl<'a> Parameter<'a> {
    pub fn of(input: &'a PatType) -> syn::Result<Self> {
        check_lifetime(&input.ty)?;
        if let Some(constant) = grid_constant(input)? {
            return Ok(Parameter::GridConstant(constant));
        }
        let ty = &*input.ty;
        check_reference(ty)?;
        Ok(match ty {
            Type::Reference(r) => match &*r.elem {
                Type::Slice(s) => {
                    Parameter::Slice { element: &s.elem, mutable: false, reference: true }
                }
                element => Parameter::Reference(element),
            },
            Type::Ptr(p) => {
                let mutable = matches!(p.mutability, PointerMutability::Mut(_));
                match &*p.elem {
                    Type::Slice(s) => {
                        Parameter::Slice { element: &s.elem, mutable, reference: false }
                    }
                    element => Parameter::Pointer { element, mutable },
                }
            }
            _ => match disjoint(ty) {
                Some(element) => Parameter::Disjoint(element),
                None => Parameter::Value(ty),
            },
        })
    }

    /// The type that all threads have at once, which must be `Sync`.
    pub fn shared(&self) -> Option<&'a Type> {
        match *self {
            Parameter::GridConstant(ty) | Parameter::Reference(ty) => Some(ty),
            Parameter::Slice { element, reference: true, .. } => Some(element),
            _ => None,
        }
    }

    /// The pointer parameter's type, and the expression that makes the slice.
    pub fn assemble_slice(
        &self,
        pointer: &Ident,
        length: &Ident,
    ) -> Option<(TokenStream, TokenStream)> {
        Some(match *self {
            // The host passes a device pointer and the length of what it points to: that is the
            // launch contract of a kernel with a slice. Hosts pass null for no elements, which a
            // reference must not be.
            Parameter::Slice { element, reference: true, .. } => {
                let value = quote! {
                    if #length == 0 {
                        &[] as &[#element]
                    } else {
                        // SAFETY: the host passes a valid pointer and length; see `#[kernel]`.
                        unsafe { ::core::slice::from_raw_parts(#pointer, #length) }
                    }
                };
                (quote!(*const #element), value)
            }
            Parameter::Slice { element, mutable: false, .. } => (
                quote!(*const #element),
                quote!(::core::ptr::slice_from_raw_parts(#pointer, #length)),
            ),
            Parameter::Slice { element, .. } => (
                quote!(*mut #element),
                quote!(::core::ptr::slice_from_raw_parts_mut(#pointer, #length)),
            ),
            Parameter::Disjoint(element) => {
                let value = quote! {
                    // SAFETY: the host passes a valid pointer and length, and nothing else has
                    // the elements during the launch; see `#[kernel]`.
                    unsafe {
                        ::cuda_std::disjoint::DisjointSlice::from_raw_parts(#pointer, #length)
                    }
                };
                (quote!(*mut #element), value)
            }
            _ => return None,
        })
    }

    /// The parameter of the host's `launch`: its type, and the expression that is passed.
    pub fn on_host(&self, name: &Ident) -> (TokenStream, TokenStream) {
        let kind = match *self {
            Parameter::GridConstant(ty) | Parameter::Value(ty) => {
                return (quote!(#ty), quote!(::cuda_std::launch::Passed::new(#name)));
            }
            Parameter::Slice { element, mutable: false, .. } => quote!(Slice<#element>),
            Parameter::Slice { element, .. } | Parameter::Disjoint(element) => {
                quote!(SliceMut<#element>)
            }
            Parameter::Reference(element) => quote!(Reference<#element>),
            Parameter::Pointer { element, mutable: false } => quote!(Pointer<#element>),
            Parameter::Pointer { element, .. } => quote!(PointerMut<#element>),
        };
        let kind = quote!(::cuda_std::launch::#kind);
        let pass = quote!(::cuda_std::launch::Argument::<#kind>::pass(#name));
        (quote!(impl ::cuda_std::launch::Argument<#kind>), pass)
    }
}

/// Refuses lifetimes: one that a kernel could choose could be `'static`, and no kernel may keep its
/// parameters.
fn check_lifetime(ty: &Type) -> syn::Result<()> {
    let Type::Reference(reference) = ty else { return Ok(()) };
    let Some(lifetime) = &reference.lifetime else { return Ok(()) };
    let message = "what the host passes lives for one launch: leave out the lifetime";
    Err(Error::new(lifetime.span(), message))
}

/// Refuses `&mut`: every thread gets the parameters, so there would be many such references to one
/// place.
fn check_reference(ty: &Type) -> syn::Result<()> {
    let Type::Reference(reference) = ty else { return Ok(()) };
    let Some(mutable) = reference.mutability else { return Ok(()) };
    let instead = match &*reference.elem {
        Type::Slice(_) => {
            "`DisjointSlice<T>`, of which each thread has its own elements, or `*mut [T]`"
        }
        _ => "`*mut T`",
    };
    let message = format!(
        "a kernel's parameter cannot be `&mut`, because all threads would have it: take {instead}"
    );
    Err(Error::new(mutable.span(), message))
}

/// The `T` of `DisjointSlice<T>`.
fn disjoint(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "DisjointSlice")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

/// The `T` of `#[grid_constant] name: &T`.
fn grid_constant(input: &PatType) -> syn::Result<Option<&Type>> {
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
            _ => return Ok(Some(&r.elem)),
        },
        _ => "a `#[grid_constant]` is a `&T`: the launch passes the `T`",
    };
    Err(Error::new(ty.span(), message))
}

/// The directive that aligns a grid constant, and the expression that is the reference.
///
/// The constant is the parameter `index` of the PTX.
pub fn assemble_grid_constant(
    ty: &Type,
    kernel: &Ident,
    index: usize,
) -> (TokenStream, TokenStream) {
    let kernel = kernel.unraw();
    // Tensor maps need this alignment.
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
