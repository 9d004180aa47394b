//! From the parsed type to its `impl`: refuse what cannot be a job, then write one constant for each option given.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Data, DeriveInput, Error, Generics, Ident, Result};

use crate::{
    name::kind_of,
    options::{Options, collect},
};

/// The `impl` of `Job`, or every problem found.
pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let mut problems = None;
    collect(&mut problems, refuse_generics(&input.generics));
    collect(&mut problems, refuse_inner_options(input));
    let options = collect(&mut problems, Options::read(&input.attrs)).unwrap_or_default();
    if let Some(problems) = problems {
        return Err(problems);
    }
    // Judged last: the name does not matter to a type whose only problem is in the kind it was given.
    let kind = match &options.kind {
        Some(kind) => kind.clone(),
        None => kind_of(&input.ident)?,
    };
    Ok(implementation(&input.ident, &kind, &options))
}

fn implementation(ident: &Ident, kind: &str, options: &Options) -> TokenStream {
    let version = options.version.map(|v| quote!(const VERSION: i32 = #v;));
    let queue = options.queue.as_ref();
    let queue = queue.map(|q| quote!(const QUEUE: &'static str = #q;));
    let attempts = options.attempts;
    let attempts = attempts.map(|a| quote!(const ATTEMPTS_MAX: i32 = #a;));
    let priority = options.priority.map(|p| quote!(const PRIORITY: i16 = #p;));
    let time_limit = options
        .time_limit_ms
        .map(|ms| quote!(const TIME_LIMIT: ::core::time::Duration = ::core::time::Duration::from_millis(#ms);));
    quote! {
        #[automatically_derived]
        impl ::rowlock::Job for #ident {
            const KIND: &'static str = #kind;
            #version #queue #attempts #priority #time_limit
        }
    }
}

fn refuse_generics(generics: &Generics) -> Result<()> {
    if let Some(lifetime) = generics.lifetimes().next() {
        let problem = "a job outlives the code that enqueued it, so it cannot borrow; own the data \
                       (`String` for `&str`) and remove the lifetime";
        return Err(Error::new_spanned(lifetime, problem));
    }
    if generics.params.is_empty() {
        return Ok(());
    }
    let problem = "a kind is exactly one type, so a job cannot be generic; derive Job on a type without \
                   parameters, or write the impl by hand with a KIND for each";
    Err(Error::new_spanned(&generics.params, problem))
}

/// Options belong to the type; one on a field would be ignored, which the author should hear.
fn refuse_inner_options(input: &DeriveInput) -> Result<()> {
    let mut problems = None;
    let mut refuse = |attrs: &[Attribute], place: &str| {
        for attr in attrs.iter().filter(|a| a.path().is_ident("job")) {
            let problem = format!("{place} takes no options; put `#[job(…)]` on the type");
            collect::<()>(&mut problems, Err(Error::new_spanned(attr, problem)));
        }
    };
    match &input.data {
        Data::Struct(data) => data.fields.iter().for_each(|f| refuse(&f.attrs, "a field")),
        Data::Enum(data) => {
            for variant in &data.variants {
                refuse(&variant.attrs, "a variant");
                let fields = variant.fields.iter();
                fields.for_each(|f| refuse(&f.attrs, "a field"));
            }
        }
        Data::Union(data) => {
            let problem = "Job can be derived for a struct or an enum, not for a union";
            return Err(Error::new_spanned(data.union_token, problem));
        }
    }
    problems.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    fn problems(input: DeriveInput) -> Vec<String> {
        let error = expand(&input).expect_err("it expanded");
        error.into_iter().map(|e| e.to_string()).collect()
    }

    #[test]
    fn only_given_options_become_constants() {
        let bare = expand(&parse_quote!(
            struct ReserveInventory {
                order_id: i64,
            }
        ))
        .unwrap();
        let expected = quote! {
            #[automatically_derived]
            impl ::rowlock::Job for ReserveInventory {
                const KIND: &'static str = "reserve-inventory";
            }
        };
        assert_eq!(bare.to_string(), expected.to_string());
    }

    #[test]
    fn every_option_becomes_its_constant() {
        let full = expand(&parse_quote! {
            #[job(kind = "reserve", version = 2, queue = "orders", attempts = 8, priority = 1)]
            #[job(time_limit = "30s")]
            enum Reserve { One { item: i64 }, All(Vec<i64>), None }
        });
        let expected = quote! {
            #[automatically_derived]
            impl ::rowlock::Job for Reserve {
                const KIND: &'static str = "reserve";
                const VERSION: i32 = 2i32;
                const QUEUE: &'static str = "orders";
                const ATTEMPTS_MAX: i32 = 8i32;
                const PRIORITY: i16 = 1i16;
                const TIME_LIMIT: ::core::time::Duration = ::core::time::Duration::from_millis(30000u64);
            }
        };
        assert_eq!(full.unwrap().to_string(), expected.to_string());
    }

    #[test]
    fn a_name_that_gives_no_kind_asks_for_one() {
        assert_eq!(
            problems(parse_quote!(
                struct Größe;
            )),
            [
                "the type's name gives the kind \"größe\", which is not a valid name (1 to 100 of a-z, A-Z, 0-9 and \
                 -_.:/); set one with #[job(kind = \"…\")]"
            ]
        );
        assert!(
            expand(&parse_quote!(
                #[job(kind = "size")]
                struct Größe;
            ))
            .is_ok()
        );
        assert_eq!(
            problems(parse_quote!(
                struct __;
            ))
            .len(),
            1
        );
        assert_eq!(
            problems(parse_quote!(
                #[job(kind = "a b")]
                struct Größe;
            ))
            .len(),
            1,
            "only the bad kind is reported"
        );
    }

    #[test]
    fn a_generic_or_borrowing_job_is_refused_with_a_sentence() {
        let borrows = "a job outlives the code that enqueued it, so it cannot borrow; own the data \
                       (`String` for `&str`) and remove the lifetime";
        let generic = "a kind is exactly one type, so a job cannot be generic; derive Job on a type without \
                       parameters, or write the impl by hand with a KIND for each";
        assert_eq!(
            problems(parse_quote!(
                struct A<'a> {
                    name: &'a str,
                }
            )),
            [borrows]
        );
        assert_eq!(
            problems(parse_quote!(
                struct A<'a, T>(&'a T);
            )),
            [borrows]
        );
        assert_eq!(
            problems(parse_quote!(
                struct A<T>(T);
            )),
            [generic]
        );
        assert_eq!(
            problems(parse_quote!(
                enum A<const N: usize> {
                    B([u8; N]),
                }
            )),
            [generic]
        );
    }

    #[test]
    fn options_on_a_field_or_a_variant_are_refused() {
        assert_eq!(
            problems(parse_quote!(
                struct A {
                    #[job(secret)]
                    #[serde(default)]
                    card: String,
                }
            )),
            ["a field takes no options; put `#[job(…)]` on the type"]
        );
        let places: Vec<bool> = problems(parse_quote! {
            enum A { #[job(kind = "b")] B, C(#[job(secret)] u8) }
        })
        .iter()
        .map(|p| p.starts_with("a variant takes no options"))
        .collect();
        assert_eq!(places, [true, false]);
    }

    #[test]
    fn a_union_is_refused() {
        assert_eq!(
            problems(parse_quote!(union A { a: u8, b: i8 })),
            ["Job can be derived for a struct or an enum, not for a union"]
        );
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let found = problems(parse_quote! {
            #[job(priority = 9, attempts = 0)]
            struct A<T> { #[job(secret)] t: T }
        });
        assert_eq!(found.len(), 4, "{found:#?}");
    }
}
