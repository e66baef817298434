//! The modules of a crate, and the items in them.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::macros::unquoted;
use super::tokens::{Kind, Tokens};
use crate::CudaBuilderError;

/// A crate, from its `lib.rs` on.
pub struct Crate {
    pub files: Vec<File>,
    /// The first one is the root.
    pub modules: Vec<Module>,
    pub items: Vec<Item>,
    /// Whether it is built for the GPU, without `std`.
    pub is_for_device: bool,
    /// The one feature that it is built with; any, if none is named.
    feature: Option<String>,
}

pub struct File {
    pub path: PathBuf,
    pub tokens: Rc<Tokens>,
}

/// The tokens of files that were read: a crate is read once for each of its features.
pub type Files = HashMap<PathBuf, Rc<Tokens>>;

/// A part of a file, in tokens.
#[derive(Clone, Debug)]
pub struct Span {
    pub file: usize,
    pub range: Range<usize>,
}

pub struct Module {
    pub parent: usize,
    /// From the root on: `::a::b`.
    pub path: String,
    pub name: String,
    /// Conditions of its own and of the modules around it.
    pub conditions: Vec<Span>,
    pub children: Vec<usize>,
    pub items: Vec<usize>,
    pub imports: Vec<Import>,
}

/// One name of a `use`, or all names of a module.
pub struct Import {
    pub path: Vec<String>,
    /// None for `*`.
    pub alias: Option<String>,
    pub is_public: bool,
    pub conditions: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// Of a function, a type, a constant, a static.
    Named,
    Trait,
    /// `macro_rules!`.
    Macro,
    /// A macro that stands for items.
    Invocation,
    /// `impl`, `extern`, and attributes of the crate.
    Other,
}

pub struct Item {
    pub kind: ItemKind,
    pub name: Option<String>,
    pub module: usize,
    pub span: Span,
    /// `pub`, without a restriction.
    pub is_public: bool,
}

/// Words in front of the one that says what an item is.
const MODIFIERS: [&str; 7] = ["unsafe", "async", "const", "extern", "default", "safe", "auto"];
const NAMED: [&str; 7] = ["fn", "struct", "enum", "union", "type", "static", "const"];

impl Crate {
    /// Reads the crate in a folder, as it is with one of its features, or with any.
    ///
    /// # Errors
    /// If a file of it cannot be read.
    pub fn read(
        folder: &Path,
        feature: Option<&str>,
        files: &mut Files,
    ) -> Result<Self, CudaBuilderError> {
        let mut read = Crate {
            files: Vec::new(),
            modules: vec![Module::new(0, String::new(), String::new(), Vec::new())],
            items: Vec::new(),
            is_for_device: false,
            feature: feature.map(str::to_owned),
        };
        let root = folder.join("src/lib.rs");
        let file = read.open(&root, files)?;
        let is_inner = |tokens: &Tokens, at: usize| {
            let words = ["#", "!", "[", "no_std", "]"];
            words.iter().enumerate().all(|(i, word)| tokens.is(at + i, word))
        };
        let tokens = &read.files[file].tokens;
        read.is_for_device = (0..tokens.tokens.len()).any(|at| is_inner(tokens, at));
        let end = tokens.tokens.len();
        let place = Place { folder: root.with_file_name(""), of_file: root.with_file_name("") };
        read.module(0, &Span { file, range: 0..end }, &place, files)?;
        Ok(read)
    }

    /// The folder of its manifest.
    pub fn folder(&self) -> &Path {
        let root = &self.files[0].path;
        root.parent().and_then(Path::parent).unwrap_or(root)
    }

    /// The tokens of a part of a file.
    pub fn tokens(&self, span: &Span) -> &Tokens {
        &self.files[span.file].tokens
    }

    fn open(&mut self, path: &Path, files: &mut Files) -> Result<usize, CudaBuilderError> {
        let tokens = match files.get(path) {
            Some(tokens) => tokens.clone(),
            None => {
                let text = fs::read_to_string(path).map_err(CudaBuilderError::io(path))?;
                let tokens = Rc::new(Tokens::of(text));
                files.insert(path.to_owned(), tokens.clone());
                tokens
            }
        };
        self.files.push(File { path: path.to_owned(), tokens });
        Ok(self.files.len() - 1)
    }

    /// Reads the items of a module.
    fn module(
        &mut self,
        module: usize,
        span: &Span,
        place: &Place,
        files: &mut Files,
    ) -> Result<(), CudaBuilderError> {
        let mut at = span.range.start;
        while at < span.range.end {
            let parsed = Parsed::of(&self.files[span.file].tokens, at, span.range.end);
            let item = Span { file: span.file, range: at..parsed.end };
            at = parsed.end;
            if !self.is_compiled(span.file, &parsed.attributes) {
                continue;
            }
            match parsed.what {
                What::Doc => {}
                What::Condition => self.modules[module].conditions.push(item),
                What::Use(from) => self.import(module, span.file, from, &parsed),
                What::Module(ref name, ref body) => {
                    let path = format!("{}::{name}", self.modules[module].path);
                    let mut conditions = self.modules[module].conditions.clone();
                    let own = parsed.attributes.iter().cloned();
                    conditions.extend(own.map(|range| Span { file: span.file, range }));
                    let child = Module::new(module, path, name.clone(), conditions);
                    self.modules.push(child);
                    let child = self.modules.len() - 1;
                    self.modules[module].children.push(child);
                    let (span, place) = match body {
                        Some(range) => {
                            (Span { file: span.file, range: range.clone() }, place.inline(name))
                        }
                        None => {
                            let tokens = &self.files[span.file].tokens;
                            let (path, place) = place.file(name, parsed.path(tokens));
                            let file = self.open(&path, files)?;
                            let end = self.files[file].tokens.tokens.len();
                            (Span { file, range: 0..end }, place)
                        }
                    };
                    self.module(child, &span, &place, files)?;
                }
                What::Item(kind, name) => {
                    let is_public = parsed.is_public;
                    self.modules[module].items.push(self.items.len());
                    self.items.push(Item { kind, name, module, span: item, is_public });
                }
            }
        }
        Ok(())
    }

    /// Whether no attribute leaves an item out of the build that matters.
    fn is_compiled(&self, file: usize, attributes: &[Range<usize>]) -> bool {
        let tokens = &self.files[file].tokens;
        let is = |range: &Range<usize>, expected: &[&str]| {
            range.len() == expected.len()
                && range.clone().zip(expected).all(|(at, one)| tokens.is(at, one))
        };
        let test = ["#", "[", "cfg", "(", "test", ")", "]"];
        let host =
            ["#", "[", "cfg", "(", "not", "(", "target_arch", "=", "\"nvptx64\"", ")", ")", "]"];
        let is_of_another_feature = |range: &Range<usize>| {
            let Some(feature) = &self.feature else { return false };
            let is_feature = |at| unquoted(tokens, at).as_deref() == Some(feature);
            let start = range.start;
            let condition = ["#", "[", "cfg", "(", "feature", "="];
            is(&(start..start + condition.len()), &condition)
                && range.len() == condition.len() + 3
                && !is_feature(start + condition.len())
        };
        let is_left_out = |range| {
            is(range, &test)
                || self.is_for_device && is(range, &host)
                || is_of_another_feature(range)
        };
        !attributes.iter().any(is_left_out)
    }

    fn import(&mut self, module: usize, file: usize, from: usize, parsed: &Parsed) {
        let tokens = &self.files[file].tokens;
        let texts = |range: &Range<usize>| {
            range.clone().map(|at| tokens.text(tokens.get(at))).collect::<Vec<_>>().join(" ")
        };
        let conditions: String = parsed.attributes.iter().map(texts).collect();
        let imports = imports(tokens, from).into_iter().map(|(path, alias)| Import {
            path,
            alias,
            is_public: parsed.is_public,
            conditions: conditions.clone(),
        });
        self.modules[module].imports.extend(imports);
    }
}

impl Module {
    fn new(parent: usize, path: String, name: String, conditions: Vec<Span>) -> Self {
        let (children, items, imports) = (Vec::new(), Vec::new(), Vec::new());
        Module { parent, path, name, conditions, children, items, imports }
    }
}

/// The paths and names that a `use` imports, whose tree begins here; no name for `*`.
pub fn imports(tokens: &Tokens, from: usize) -> Vec<(Vec<String>, Option<String>)> {
    let mut imports = Vec::new();
    let end = semicolon(tokens, from).saturating_sub(1);
    tree(tokens, from, end, &[], &mut |path, alias| imports.push((path, alias)));
    imports
}

/// The names in a part of the tree of a `use`.
fn tree(
    tokens: &Tokens,
    mut at: usize,
    end: usize,
    prefix: &[String],
    add: &mut impl FnMut(Vec<String>, Option<String>),
) {
    let mut path = prefix.to_vec();
    while at < end {
        if tokens.is(at, ",") {
            path = prefix.to_vec();
            at += 1;
        } else if tokens.is(at, "{") {
            tree(tokens, at + 1, tokens.after(at) - 1, &path, add);
            at = tokens.after(at);
        } else if tokens.is_path_separator(at) {
            if path.is_empty() {
                path.push(String::new());
            }
            at += 2;
        } else if tokens.is(at, "*") {
            add(path.clone(), None);
            at += 1;
        } else {
            match tokens.word(at) {
                // `a::{self}` is `a`.
                Some("self") if !path.is_empty() => {}
                Some(word) => path.push(word.to_owned()),
                None => {}
            }
            at += 1;
            let alias =
                (tokens.is(at, "as")).then(|| tokens.word(at + 1).unwrap_or("_").to_owned());
            at += if alias.is_some() { 2 } else { 0 };
            if !tokens.is_path_separator(at) {
                let last = path.last().cloned();
                add(path.clone(), alias.or(last));
            }
        }
    }
}

/// Where the files of a module's children are.
struct Place {
    /// Of its children.
    folder: PathBuf,
    /// Of the file that it is written in.
    of_file: PathBuf,
}

impl Place {
    fn inline(&self, name: &str) -> Place {
        Place { folder: self.folder.join(name), of_file: self.of_file.clone() }
    }

    /// The file of a child, and the place in that.
    fn file(&self, name: &str, path: Option<String>) -> (PathBuf, Place) {
        let name = name.trim_start_matches("r#");
        if let Some(path) = path {
            let path = self.of_file.join(path);
            let folder = path.with_file_name("");
            return (path, Place { folder: folder.clone(), of_file: folder });
        }
        let beside = self.folder.join(format!("{name}.rs"));
        let folder = self.folder.join(name);
        if beside.is_file() {
            (beside, Place { folder, of_file: self.folder.clone() })
        } else {
            (folder.join("mod.rs"), Place { folder: folder.clone(), of_file: folder })
        }
    }
}

enum What {
    /// Documentation of the module.
    Doc,
    /// `#![cfg(..)]` of the module.
    Condition,
    /// A `use`, and where its tree begins.
    Use(usize),
    /// A module, and its body if that is here.
    Module(String, Option<Range<usize>>),
    Item(ItemKind, Option<String>),
}

/// What begins at a token.
struct Parsed {
    /// Attributes in front of it, without documentation.
    attributes: Vec<Range<usize>>,
    is_public: bool,
    what: What,
    end: usize,
}

impl Parsed {
    fn of(tokens: &Tokens, start: usize, limit: usize) -> Self {
        let mut parsed =
            Parsed { attributes: Vec::new(), is_public: false, what: What::Doc, end: limit };
        let mut at = start;
        while tokens.is(at, "#") {
            let is_inner = tokens.is(at + 1, "!");
            let group = at + 1 + usize::from(is_inner);
            let end = tokens.after(group);
            let name = tokens.word(group + 1);
            if is_inner {
                parsed.end = end.min(limit);
                parsed.what = match name {
                    Some("doc") => What::Doc,
                    Some("cfg" | "cfg_attr") => What::Condition,
                    _ => What::Item(ItemKind::Other, None),
                };
                return parsed;
            }
            if name != Some("doc") {
                parsed.attributes.push(at..end);
            }
            at = end;
        }
        if tokens.is(at, "pub") {
            at += 1;
            parsed.is_public = !tokens.is(at, "(");
            at = if parsed.is_public { at } else { tokens.after(at) };
        }
        let (what, end) = head(tokens, at);
        parsed.what = what;
        // At least one token, whatever stands there.
        parsed.end = end.clamp(start + 1, limit.max(start + 1));
        parsed
    }

    /// What `#[path = ".."]` says.
    fn path(&self, tokens: &Tokens) -> Option<String> {
        let is_path = |range: &&Range<usize>| tokens.is(range.start + 2, "path");
        let attribute = self.attributes.iter().find(is_path)?;
        unquoted(tokens, attribute.start + 4)
    }
}

/// The kind of the item that begins here, behind its attributes and `pub`, and its end.
fn head(tokens: &Tokens, start: usize) -> (What, usize) {
    let mut at = start;
    // `const X`, but not `const fn`.
    let is_modifier = |at: usize| {
        tokens.word(at).is_some_and(|word| MODIFIERS.contains(&word))
            && (tokens.word(at + 1).is_some_and(|next| {
                next == "fn"
                    || MODIFIERS.contains(&next)
                    || matches!(next, "trait" | "impl" | "mod")
            }) || tokens.is(at, "extern") && tokens.get(at + 1).kind == Kind::Literal)
    };
    while is_modifier(at) {
        at += 1 + usize::from(tokens.get(at + 1).kind == Kind::Literal);
    }
    let name = |at: usize| tokens.word(at).map(str::to_owned);
    let named = |kind| What::Item(kind, name(at + 1));
    match tokens.word(at) {
        Some("use") => (What::Use(at + 1), semicolon(tokens, at)),
        Some("mod") if tokens.is(at + 2, ";") => {
            (What::Module(name(at + 1).unwrap_or_default(), None), at + 3)
        }
        Some("mod") => {
            let end = tokens.after(at + 2);
            (What::Module(name(at + 1).unwrap_or_default(), Some(at + 3..end - 1)), end)
        }
        Some("static") if tokens.is(at + 1, "mut") => {
            (What::Item(ItemKind::Named, name(at + 2)), semicolon(tokens, at))
        }
        Some("const" | "static" | "type") => (named(ItemKind::Named), semicolon(tokens, at)),
        Some("trait") => (named(ItemKind::Trait), body(tokens, at)),
        Some("macro_rules") if tokens.is(at + 1, "!") => {
            (What::Item(ItemKind::Macro, name(at + 2)), invocation(tokens, at))
        }
        Some("extern") if tokens.is(at + 1, "crate") => {
            (What::Item(ItemKind::Other, None), semicolon(tokens, at))
        }
        Some("impl" | "extern") => (What::Item(ItemKind::Other, None), body(tokens, at)),
        Some(word) if NAMED.contains(&word) && tokens.word(at + 1).is_some() => {
            (named(ItemKind::Named), body(tokens, at))
        }
        _ => (What::Item(ItemKind::Invocation, None), invocation(tokens, at)),
    }
}

/// Behind the next `;` that stands in no group.
fn semicolon(tokens: &Tokens, mut at: usize) -> usize {
    while at < tokens.tokens.len() && !tokens.is(at, ";") {
        at = tokens.after(at);
    }
    at + 1
}

/// Behind the body of an item, or behind its `;` where it has none.
fn body(tokens: &Tokens, mut at: usize) -> usize {
    // Braces among type arguments are constants.
    let mut angles = 0;
    while at < tokens.tokens.len() {
        let is_arrow = at > 0
            && matches!(tokens.get(at - 1).first, b'-' | b'=')
            && tokens.get(at - 1).is_joint;
        match tokens.get(at).first {
            b'<' => angles += 1,
            b'>' if !is_arrow => angles -= 1,
            b'{' if angles <= 0 => return tokens.after(at),
            b';' => return at + 1,
            _ => {}
        }
        at = tokens.after(at);
    }
    at
}

/// Behind a macro's arguments.
fn invocation(tokens: &Tokens, mut at: usize) -> usize {
    while at < tokens.tokens.len() {
        if tokens.is(at, "{") {
            return tokens.after(at);
        }
        if tokens.is(at, ";") {
            return at + 1;
        }
        at = tokens.after(at);
    }
    at
}
