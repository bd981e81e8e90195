// SPDX-License-Identifier: GPL-2.0

//! The kernel crate's macros that make names out of names.

use proc_macro::{TokenStream, TokenTree};
use std::fmt::Write;

/// `bitfield!` for structures of one `u64`: accessors of each field, as far as the driver uses
/// them. Values are plain integers.
#[proc_macro]
pub fn bitfield(input: TokenStream) -> TokenStream {
    let tokens: Vec<TokenTree> = input.into_iter().collect();
    let at = tokens
        .iter()
        .position(|token| token.to_string() == "struct")
        .expect("a structure");
    let name = tokens[at + 1].to_string();
    let Some(TokenTree::Group(body)) = tokens.last() else {
        panic!("{name} has no fields");
    };
    let mut methods = String::new();
    // What is left of a field without its doc: `last`, `:`, `first`, `name`.
    let body: Vec<String> = body
        .stream()
        .into_iter()
        .map(|token| token.to_string())
        .collect();
    for field in body
        .split(|token| token == ";")
        .filter(|field| !field.is_empty())
    {
        let [last, _, first, field] = &field[field.len() - 4..] else {
            unreachable!("four tokens");
        };
        let upper = field.to_uppercase();
        write!(
            methods,
            "pub(crate) const {upper}_MASK: u64 = (!0 >> (63 - {last} + {first})) << {first};
            pub(crate) fn {field}(self) -> u64 {{ (self.0 & Self::{upper}_MASK) >> {first} }}
            pub(crate) fn with_{field}(self, value: impl Into<u64>) -> Self {{
                Self(self.0 & !Self::{upper}_MASK | value.into() << {first} & Self::{upper}_MASK)
            }}
            pub(crate) fn with_const_{field}<const VALUE: u64>(self) -> Self {{
                self.with_{field}(VALUE)
            }}"
        )
        .expect("memory");
    }
    format!(
        "#[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct {name}(u64);
        impl {name} {{ {methods} }}
        impl From<u64> for {name} {{ fn from(value: u64) -> Self {{ Self(value) }} }}
        impl From<{name}> for u64 {{ fn from(value: {name}) -> Self {{ value.0 }} }}"
    )
    .parse()
    .expect("Rust")
}
