//! The host's part of `#[kernel]`: a type that launches the kernel.

use proc_macro2::{Literal, Span, TokenStream};
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::{GenericArgument, GenericParam, Generics, Ident, Pat, PatType, Visibility};

use crate::parameter::Parameter;

/// The conditions that a launch keeps to.
pub struct Contract<'a> {
    /// The name of the entry point.
    pub entry: &'a Ident,
    /// Whether the launch can break what the kernel relies on.
    pub is_unsafe: bool,
    /// The only block, or the largest, as an expression of type `Option<[u32; 3]>`.
    pub block: TokenStream,
    pub max_block: TokenStream,
    /// Bytes of dynamic shared memory, as an expression.
    pub dynamic_shared: TokenStream,
}

/// The parameters of the host's `launch`.
#[derive(Default)]
pub struct HostParameters {
    pub names: Vec<Ident>,
    pub types: Vec<TokenStream>,
    /// The values that are passed, as expressions of the names.
    pub passed: Vec<TokenStream>,
    /// The types of those values that are passed by value.
    pub values: Vec<TokenStream>,
}

/// The name of a parameter, or a substitute.
pub fn name(input: &PatType, index: usize) -> Ident {
    match &*input.pat {
        Pat::Ident(pattern) => pattern.ident.clone(),
        _ => format_ident!("argument{index}"),
    }
}

impl HostParameters {
    pub fn push(&mut self, input: &PatType, index: usize, parameter: &Parameter<'_>) {
        let name = name(input, index);
        let (ty, passed) = parameter.on_host(&name);
        if let Parameter::GridConstant(value) | Parameter::Value(value) = parameter {
            self.values.push(quote!(#value));
        }
        self.names.push(name);
        self.types.push(ty);
        self.passed.push(passed);
    }
}

/// The type, without its methods, generic as the kernel is.
pub fn declare(vis: &Visibility, kernel: &Ident, generics: &Generics) -> TokenStream {
    let (mut parameters, mut types) = (Vec::new(), Vec::new());
    for parameter in &generics.params {
        match parameter {
            GenericParam::Type(ty) => {
                let name = &ty.ident;
                parameters.push(quote!(#name));
                types.push(name);
            }
            GenericParam::Const(constant) => {
                let (name, ty) = (&constant.ident, &constant.ty);
                parameters.push(quote!(const #name: #ty));
            }
            GenericParam::Lifetime(_) => {}
        }
    }
    let doc = format!("Launches the kernel `{}`.", kernel.unraw());
    quote! {
        ::cuda_std::__on_host! {
            #[doc = #doc]
            #[allow(non_camel_case_types)]
            #[derive(::core::fmt::Debug)]
            #vis struct #kernel<'m #(, #parameters)*> {
                kernel: ::cuda_std::launch::Kernel<'m>,
                variant: ::core::marker::PhantomData<(#(#types,)*)>,
            }
        }
    }
}

/// The methods of the type, for one variant, with the values of its generic parameters.
pub fn methods(
    kernel: &Ident,
    variant: &[&GenericArgument],
    contract: &Contract<'_>,
    parameters: &HostParameters,
) -> TokenStream {
    let Contract { entry, is_unsafe, block, max_block, dynamic_shared } = contract;
    let entry = Literal::string(&entry.unraw().to_string());
    let HostParameters { names, types, passed, values } = parameters;
    // Hygienic names, so that no parameter of the kernel has them.
    let [stream, config, arguments] =
        ["stream", "config", "arguments"].map(|name| Ident::new(name, Span::mixed_site()));
    let run = (!is_unsafe).then(|| {
        quote! {
            /// Launches the kernel, and waits until it is done.
            ///
            /// # Errors
            /// If the launch does not fit the kernel, or fails.
            #[inline]
            #[allow(clippy::too_many_arguments)]
            pub fn run(
                &self,
                #stream: &::cuda_std::launch::Stream,
                #config: impl ::core::convert::Into<::cuda_std::launch::LaunchConfig>,
                #(#names: #types),*
            ) -> ::core::result::Result<(), ::cuda_std::launch::LaunchError> {
                #(::cuda_std::launch::by_value::<#values>();)*
                // SAFETY: the kernel is safe, and what it was given is borrowed until it is done.
                unsafe { self.launch(#stream, #config, #(#names),*) }?;
                ::cuda_std::launch::wait(#stream)
            }
        }
    });
    let contract_of_kernel = match is_unsafe {
        true => {
            "What the kernel says under `# Safety`; and until it is done, nothing drops, reads \
                 or writes what it writes, nor drops or writes what it reads."
        }
        false => {
            "Until the kernel is done, nothing drops, reads or writes what it writes, nor \
                  drops or writes what it reads."
        }
    };
    quote! {
        ::cuda_std::__on_host! {
            impl<'m> #kernel<'m #(, #variant)*> {
                /// The kernel of a module.
                ///
                /// # Errors
                /// If the module has none of this name.
                ///
                /// # Safety
                /// The module was built from this kernel, and not from another of the same name:
                /// launches pass the parameters that it declares here.
                #[inline]
                pub unsafe fn load(
                    module: &'m ::cuda_std::launch::Module,
                ) -> ::core::result::Result<Self, ::cuda_std::launch::LaunchError> {
                    let contract = ::cuda_std::launch::Contract {
                        kernel: #entry,
                        block: #block,
                        max_block: #max_block,
                        dynamic_shared: #dynamic_shared,
                    };
                    let kernel = ::cuda_std::launch::Kernel::load(module, contract)?;
                    ::core::result::Result::Ok(Self { kernel, variant: ::core::marker::PhantomData })
                }

                /// Enqueues a launch, with a grid, a block, and dynamic shared memory.
                ///
                /// # Safety
                #[doc = #contract_of_kernel]
                ///
                /// # Errors
                /// If the launch does not fit the kernel, or the driver refuses it.
                #[inline]
                #[allow(clippy::too_many_arguments)]
                pub unsafe fn launch(
                    &self,
                    #stream: &::cuda_std::launch::Stream,
                    #config: impl ::core::convert::Into<::cuda_std::launch::LaunchConfig>,
                    #(#names: #types),*
                ) -> ::core::result::Result<(), ::cuda_std::launch::LaunchError> {
                    #(let #names = #passed;)*
                    let mut #arguments = ::cuda_std::launch::Arguments::default();
                    #(::cuda_std::launch::Passes::push(&#names, &mut #arguments);)*
                    // SAFETY: the caller's contract; the arguments are those of the kernel.
                    unsafe { self.kernel.enqueue(#stream, ::core::convert::Into::into(#config), &#arguments) }
                }

                #run
            }
        }
    }
}
