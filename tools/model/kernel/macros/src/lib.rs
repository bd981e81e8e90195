// SPDX-License-Identifier: GPL-2.0

//! The kernel crate's macros that build names from names.

use proc_macro::{Delimiter, Group, Ident, TokenStream, TokenTree};
use std::fmt::Write;

/// Defines a structure of one `u64` with accessors for its fields, for `bitfield!`. It supports
/// what the driver uses; values are plain integers.
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
    // After the doc of a field is dropped, its tokens are `last`, `:`, `first`, `name`.
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

/// Returns the names of the functions in the body of a trait or of its implementation.
fn functions(body: TokenStream) -> Vec<String> {
    let tokens: Vec<TokenTree> = body.into_iter().collect();
    let mut names = Vec::new();
    for pair in tokens.windows(2) {
        if pair[0].to_string() == "fn" {
            names.push(pair[1].to_string());
        }
    }
    names
}

/// Adds a constant `HAS_...` for each method, for `#[vtable]`: false in a trait, true in an
/// implementation.
#[proc_macro_attribute]
pub fn vtable(_attribute: TokenStream, input: TokenStream) -> TokenStream {
    let mut tokens: Vec<TokenTree> = input.into_iter().collect();
    let is_trait = tokens.iter().any(|token| token.to_string() == "trait");
    let Some(TokenTree::Group(body)) = tokens.pop() else {
        panic!("a trait or an implementation");
    };
    let mut constants = String::new();
    for name in functions(body.stream()) {
        write!(
            constants,
            "#[allow(missing_docs, dead_code)] const HAS_{}: bool = {};",
            name.to_uppercase(),
            !is_trait
        )
        .expect("memory");
    }
    let mut stream: TokenStream = constants.parse().expect("Rust");
    stream.extend(body.stream());
    tokens.push(TokenTree::Group(Group::new(Delimiter::Brace, stream)));
    tokens.into_iter().collect()
}

/// Drops `#[pin]` from the structure, for `#[pin_data]`.
#[proc_macro_attribute]
pub fn pin_data(_attribute: TokenStream, input: TokenStream) -> TokenStream {
    let mut tokens: Vec<TokenTree> = input.into_iter().collect();
    let Some(TokenTree::Group(body)) = tokens.pop() else {
        panic!("a structure with named fields");
    };
    let mut fields: Vec<TokenTree> = Vec::new();
    for token in body.stream() {
        let is_pin =
            matches!(&token, TokenTree::Group(group) if group.stream().to_string() == "pin");
        if is_pin {
            fields.pop();
        } else {
            fields.push(token);
        }
    }
    let fields = fields.into_iter().collect();
    tokens.push(TokenTree::Group(Group::new(Delimiter::Brace, fields)));
    tokens.into_iter().collect()
}

/// Replaces `PinnedDrop` by `Drop`, for `#[pinned_drop]`.
#[proc_macro_attribute]
pub fn pinned_drop(_attribute: TokenStream, input: TokenStream) -> TokenStream {
    input
        .into_iter()
        .map(|token| match token {
            TokenTree::Ident(name) if name.to_string() == "PinnedDrop" => {
                TokenTree::Ident(Ident::new("Drop", name.span()))
            }
            TokenTree::Group(body) if body.delimiter() == Delimiter::Brace => {
                let body = body.stream().into_iter().map(|token| match token {
                    TokenTree::Group(arguments)
                        if arguments.delimiter() == Delimiter::Parenthesis =>
                    {
                        let this = "&mut self".parse().expect("Rust");
                        TokenTree::Group(Group::new(Delimiter::Parenthesis, this))
                    }
                    other => other,
                });
                TokenTree::Group(Group::new(Delimiter::Brace, body.collect()))
            }
            other => other,
        })
        .collect()
}

/// Implements `IntoBytes` for an enumeration without padding.
#[proc_macro_derive(IntoBytes)]
pub fn into_bytes(input: TokenStream) -> TokenStream {
    let tokens: Vec<String> = input.into_iter().map(|token| token.to_string()).collect();
    let at = tokens.iter().position(|token| token == "enum");
    let name = &tokens[at.expect("an enumeration") + 1];
    format!("// SAFETY: It has a representation.\nunsafe impl kernel::prelude::IntoBytes for {name} {{}}")
        .parse()
        .expect("Rust")
}
