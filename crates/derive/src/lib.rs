//! `#[derive(Described)]`: the description of settings, taken from the documentation of their fields.
//!
//! Use it through `posse_core::settings`, which defines the traits that this derive implements. It reads plain structs
//! with named fields and enums, and of serde's attributes `flatten`, `skip`, `rename` and `rename_all` (kebab-case). It depends on nothing,
//! because every build of posse waits for this crate, and what it parses is simple.

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// Implements `Described` for a struct of settings, `Takes` for an enum of words, and `DescribedKinds` for an enum
/// whose variants have settings.
///
/// Of a struct, every field is a setting whose meaning is its documentation. A field with `#[serde(flatten)]` stands
/// for all settings of its type, one with `#[serde(skip)]` for none. `#[setting(max = 20000)]` bounds a number before
/// memory is taken for it. Of an enum, every variant is a word, or a kind with the settings of its fields.
#[proc_macro_derive(Described, attributes(setting))]
pub fn described(input: TokenStream) -> TokenStream {
    let text = match read(input) {
        Ok(item) => item.implementation(),
        Err(why) => format!("compile_error!({why:?});"),
    };
    text.parse().expect("what is written here is Rust")
}

/// A struct or an enum, as far as it matters.
struct Item {
    name: String,
    is_enum: bool,
    parts: Vec<Part>,
}

/// A field of a struct or a variant of an enum.
#[derive(Default)]
struct Part {
    name: String,
    /// The type of a field.
    kind: String,
    documentation: String,
    /// What serde calls it, if not by its name.
    renamed: Option<String>,
    is_flat: bool,
    is_skipped: bool,
    /// What `#[setting(max = …)]` says.
    max: Option<String>,
    /// The fields of a variant.
    fields: Vec<Self>,
}

impl Item {
    fn implementation(&self) -> String {
        let name = &self.name;
        if self.is_enum && self.parts.iter().any(|part| !part.fields.is_empty() || !part.kind.is_empty()) {
            let arms: String = self.parts.iter().map(Part::arm).collect();
            return format!(
                "impl ::posse_core::settings::DescribedKinds for {name} {{
                    fn describe_kind(&self, all: &mut ::std::vec::Vec<::posse_core::settings::Setting>) {{
                        match self {{ {arms} }}
                    }}
                }}"
            );
        }
        if self.is_enum {
            let words: String = self.parts.iter().map(|part| format!("{:?},", part.word())).collect();
            return format!(
                "impl ::posse_core::settings::Takes for {name} {{
                    const KIND: ::posse_core::settings::Kind = ::posse_core::settings::Kind::OneOf(&[{words}]);
                }}"
            );
        }
        let settings: String = self.parts.iter().map(Part::setting).collect();
        format!(
            "impl ::posse_core::settings::Described for {name} {{
                fn describe(all: &mut ::std::vec::Vec<::posse_core::settings::Setting>) {{ {settings} }}
            }}
            impl ::posse_core::settings::Takes for {name} {{
                const KIND: ::posse_core::settings::Kind =
                    ::posse_core::settings::Kind::Table(<{name} as ::posse_core::settings::Described>::describe);
            }}"
        )
    }
}

impl Part {
    /// The statement that adds a field's settings to the list.
    fn setting(&self) -> String {
        let Self { name, kind, documentation, renamed, is_flat, max, .. } = self;
        if self.is_skipped {
            return String::new();
        }
        if *is_flat {
            return format!("<{kind} as ::posse_core::settings::Described>::describe(all);");
        }
        let key = renamed.as_ref().unwrap_or(name);
        let kind = match max {
            Some(max) => format!("::posse_core::settings::Kind::Size({max})"),
            None => format!("<{kind} as ::posse_core::settings::Takes>::KIND"),
        };
        format!("all.push(::posse_core::settings::Setting::documented({key:?}, {kind}, {documentation:?}));")
    }

    /// The arm of a `match` that adds the settings of a variant.
    fn arm(&self) -> String {
        let Self { name, kind, fields, .. } = self;
        if !kind.is_empty() {
            return format!(
                "Self::{name}(_) => <{kind} as ::posse_core::settings::Described>::describe(all),"
            );
        }
        let settings: String = fields.iter().map(Self::setting).collect();
        format!("Self::{name} {{ .. }} => {{ {settings} }}")
    }

    /// The word that serde writes for a variant: its name in kebab-case, unless it was renamed.
    fn word(&self) -> String {
        let kebab = || {
            let mut word = String::new();
            for letter in self.name.chars() {
                if letter.is_uppercase() && !word.is_empty() {
                    word.push('-');
                }
                word.extend(letter.to_lowercase());
            }
            word
        };
        self.renamed.clone().unwrap_or_else(kebab)
    }
}

/// Reads the item that the derive stands on.
fn read(input: TokenStream) -> Result<Item, String> {
    let mut tokens = input.into_iter().peekable();
    let mut is_enum = None;
    let mut name = None;
    for token in tokens.by_ref() {
        match token {
            TokenTree::Ident(word) if word.to_string() == "struct" => is_enum = Some(false),
            TokenTree::Ident(word) if word.to_string() == "enum" => is_enum = Some(true),
            TokenTree::Ident(word) if is_enum.is_some() && name.is_none() => name = Some(word.to_string()),
            TokenTree::Group(body) if name.is_some() && body.delimiter() == Delimiter::Brace => {
                let is_enum = is_enum.unwrap_or(false);
                return Ok(Item {
                    name: name.unwrap_or_default(),
                    is_enum,
                    parts: read_parts(&body, is_enum)?,
                });
            }
            _ => {}
        }
    }
    Err("`Described` is for structs with named fields and for enums".into())
}

/// The fields or variants in the braces of an item.
fn read_parts(body: &Group, is_enum: bool) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut part = Part::default();
    // Commas inside of `<…>` do not end a field.
    let (mut depth, mut in_type) = (0_usize, false);
    let mut tokens = body.stream().into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' && !in_type => {
                if let Some(TokenTree::Group(attribute)) = tokens.next() {
                    note(&attribute, &mut part)?;
                }
            }
            TokenTree::Punct(mark) if mark.as_char() == ',' && depth == 0 => {
                parts.push(std::mem::take(&mut part));
                in_type = false;
            }
            TokenTree::Punct(mark) if mark.as_char() == ':' && !in_type && !is_enum => in_type = true,
            token if in_type => {
                match token.to_string().as_str() {
                    "<" => depth += 1,
                    ">" => depth = depth.saturating_sub(1),
                    _ => {}
                }
                part.kind.push_str(&token.to_string());
            }
            TokenTree::Ident(word) if word.to_string() == "pub" => {}
            TokenTree::Ident(word) => part.name = word.to_string(),
            TokenTree::Group(fields) if is_enum && fields.delimiter() == Delimiter::Brace => {
                part.fields = read_parts(&fields, false)?;
            }
            TokenTree::Group(fields) if is_enum => part.kind = fields.stream().to_string(),
            // The `(crate)` of a visibility.
            _ => {}
        }
    }
    if !part.name.is_empty() {
        parts.push(part);
    }
    Ok(parts)
}

/// Takes what matters from an attribute of a field or variant.
fn note(attribute: &Group, part: &mut Part) -> Result<(), String> {
    let tokens: Vec<TokenTree> = attribute.stream().into_iter().collect();
    match tokens.as_slice() {
        [TokenTree::Ident(name), TokenTree::Punct(_), TokenTree::Literal(text)]
            if name.to_string() == "doc" =>
        {
            if !part.documentation.is_empty() {
                part.documentation.push('\n');
            }
            part.documentation.push_str(unquoted(&text.to_string()).trim());
        }
        [TokenTree::Ident(name), TokenTree::Group(list)] => {
            let words: Vec<String> = list.stream().into_iter().map(|token| token.to_string()).collect();
            let value = |key: &str| {
                words.iter().position(|word| word == key).and_then(|place| words.get(place + 2)).cloned()
            };
            match name.to_string().as_str() {
                "serde" => {
                    part.is_flat |= words.iter().any(|word| word == "flatten");
                    part.is_skipped |= words.iter().any(|word| word == "skip");
                    if let Some(word) = value("rename") {
                        part.renamed = Some(unquoted(&word));
                    }
                }
                "setting" => {
                    let max = value("max").ok_or("`setting` takes `max = NUMBER`")?;
                    part.max = Some(max);
                }
                _ => {}
            }
        }
        _ => {}
    }
    Ok(())
}

/// The text of a string literal, with the escapes that documentation has.
fn unquoted(literal: &str) -> String {
    let inner = literal.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match inner {
        Some(inner) => inner.replace("\\\"", "\"").replace("\\'", "'").replace("\\\\", "\\"),
        None => literal.trim_start_matches('r').trim_matches('#').trim_matches('"').to_owned(),
    }
}
