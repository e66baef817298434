//! The digest of a crate's items, wherever they stand.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::hash::BuildHasherDefault;
use std::ops::Range;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::items::{Crate, Item, ItemKind, Span, imports};
use super::macros::{Expansion, constant, includes, used};
use super::scope::{Names, Scope, Target, WordHasher};
use super::tokens::{Kind, Tokens};

type Hash = [u8; 32];

/// The digest of a crate. `is_dependency` says whether another crate finds items by their paths.
pub fn digest(source: &Crate, names: &Names, is_dependency: bool) -> Hash {
    let scope = Scope::of(source);
    let context = Context { source, scope: &scope, names, is_dependency };
    let mut keys: Vec<Key> = (0..source.items.len()).map(|item| context.key(item)).collect();
    if is_dependency {
        keys.extend(context.exports());
    }
    let mut hashes: Vec<Hash> = keys.iter().map(|key| Sha256::digest(&key.bytes).into()).collect();
    // Each round adds the hashes of the items that an item mentions. It ends when no more items
    // differ.
    let mut kinds = hashes.iter().collect::<HashSet<_>>().len();
    loop {
        let next = keys.iter().zip(&hashes).map(|(key, own)| {
            let mut hasher = Sha256::new_with_prefix(own);
            key.refers.iter().for_each(|item| hasher.update(hashes[*item]));
            hasher.finalize().into()
        });
        hashes = next.collect();
        let now = hashes.iter().collect::<HashSet<_>>().len();
        if now == kinds {
            break;
        }
        kinds = now;
    }
    hashes.sort_unstable();
    Sha256::digest(hashes.concat()).into()
}

/// The key of an item.
#[derive(Default)]
struct Key {
    bytes: Vec<u8>,
    /// The items of ambiguous names that it mentions.
    refers: Vec<usize>,
}

impl Key {
    fn add(&mut self, kind: u8, text: &str) {
        self.bytes.push(kind);
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
    }

    fn refer(&mut self, items: &[usize]) {
        let first = match self.refers.iter().position(|one| Some(one) == items.first()) {
            Some(first) if self.refers[first..].starts_with(items) => first,
            _ => {
                self.refers.extend(items);
                self.refers.len() - items.len()
            }
        };
        self.add(b'#', &format!("{first} {}", items.len()));
    }
}

struct Context<'a> {
    source: &'a Crate,
    scope: &'a Scope<'a>,
    names: &'a Names,
    is_dependency: bool,
}

type Words<'a> = HashSet<&'a str, BuildHasherDefault<WordHasher>>;

/// What is collected while the tokens of an item are read.
#[derive(Default)]
struct Mentions<'a> {
    words: Words<'a>,
    /// Words behind `.` and `::`.
    methods: Words<'a>,
    macros: Vec<usize>,
}

impl<'a> Context<'a> {
    fn key(&self, index: usize) -> Key {
        let item: &Item = &self.source.items[index];
        let module = &self.source.modules[item.module];
        let mut key = Key::default();
        for condition in &module.conditions {
            self.raw(condition, &mut key);
        }
        key.add(b'>', "");
        if self.is_dependency
            && item.is_public
            && item.name.is_some()
            && self.scope.is_ambiguous(index)
        {
            key.add(b'@', &module.path);
        }
        let tokens = self.source.tokens(&item.span);
        let file = &self.source.files[item.span.file].path;
        self.included(tokens, item.span.range.clone(), file, &mut vec![file.clone()], &mut key);
        // The names in a macro are found where it is used.
        if item.kind == ItemKind::Macro {
            self.raw(&item.span, &mut key);
            return key;
        }
        let mut mentions = Mentions::default();
        self.tokens(&item.span, item.module, true, &mut key, &mut mentions);
        let mut at = 0;
        while let Some(&found) = mentions.macros.get(at) {
            let span = &self.source.items[found].span;
            self.tokens(span, item.module, false, &mut key, &mut mentions);
            at += 1;
        }
        let expansion = self.expansion(item, &mentions);
        if expansion.includes {
            self.included_by_macros(&expansion.strings, file, &mut key);
        }
        if expansion.sees_place {
            let file = file.strip_prefix(self.source.folder()).unwrap_or(file);
            key.add(b'@', &module.path);
            key.add(b'@', &file.to_string_lossy().replace('\\', "/"));
            key.add(b'f', tokens.source());
        }
        self.traits(item.module, &mentions, &mut key);
        self.expanded(index, &mentions, &mut key);
        key
    }

    /// All tokens of a part, as they are.
    fn raw(&self, span: &Span, key: &mut Key) {
        let tokens = self.source.tokens(span);
        let mut at = span.range.start;
        while at < span.range.end {
            match documentation(tokens, at) {
                Some(end) => at = end,
                None => {
                    add_token(tokens, at, key);
                    at += 1;
                }
            }
        }
    }

    /// Adds the tokens of a part, with each path replaced by its target. Without `is_own`, for the
    /// body of a macro, adds the targets alone.
    fn tokens(
        &self,
        span: &Span,
        module: usize,
        is_own: bool,
        key: &mut Key,
        mentions: &mut Mentions<'a>,
    ) {
        let tokens = self.source.tokens(span);
        let mut seen = HashSet::new();
        let mut at = span.range.start;
        while at < span.range.end {
            if let Some(end) = documentation(tokens, at) {
                at = end;
                continue;
            }
            let Some(word) = tokens.word(at) else {
                if is_own {
                    add_token(tokens, at, key);
                }
                at += 1;
                continue;
            };
            mentions.words.insert(word);
            if word == "use" {
                self.inner_use(tokens, at, module, key);
            }
            let is_member = at > 0 && is_member(tokens, at);
            if is_member || is_behind_separator(tokens, at) {
                mentions.methods.insert(word);
            }
            // `$crate` is the macro's own crate, and other words behind `$` are its arguments.
            let is_argument = at > 0 && tokens.is(at - 1, "$") && word != "crate";
            let is_local = is_member || is_argument || !self.scope.is_known(word);
            if is_local {
                if is_own {
                    add_token(tokens, at, key);
                }
                at += 1;
                continue;
            }
            let mut end = at + 1;
            let mut path = word.to_owned();
            if is_behind_separator(tokens, at) {
                path.insert_str(0, "::");
            }
            while tokens.is_path_separator(end)
                && let Some(segment) = tokens.word(end + 2)
            {
                path += "::";
                path += segment;
                mentions.words.insert(segment);
                mentions.methods.insert(segment);
                end += 3;
            }
            let last = path.rsplit("::").next().unwrap_or_default();
            if tokens.is(end, "!") && !tokens.get(end).is_joint {
                for found in self.scope.macros(module, last) {
                    self.target(&Target::Items(vec![found], Vec::new()), key);
                    if !mentions.macros.contains(&found) {
                        mentions.macros.push(found);
                    }
                }
            }
            let targets = self.scope.resolve(module, &path);
            let is_in_crate =
                |target: &Target| matches!(target, Target::Items(..) | Target::Conditional(_));
            // A path by whatever modules leads there; a word may be that of a variable.
            let is_path = end > at + 1 && !targets.is_empty() && targets.iter().all(is_in_crate);
            if is_own && !is_path {
                (at..end).for_each(|at| add_token(tokens, at, key));
            }
            if !is_own && !targets.is_empty() && seen.insert(path.clone()) {
                key.add(b'm', &path);
            } else if !is_own {
                at = end;
                continue;
            }
            targets.iter().for_each(|target| self.target(target, key));
            at = end;
        }
    }

    /// What a `use` in a function leads to: names of the module do not know of it.
    fn inner_use(&self, tokens: &Tokens, at: usize, module: usize, key: &mut Key) {
        for (path, alias) in imports(tokens, at + 1) {
            key.add(b'n', alias.as_deref().unwrap_or("*"));
            let targets = self.scope.resolve(module, &path.join("::"));
            targets.iter().for_each(|target| self.target(target, key));
        }
    }

    fn target(&self, target: &Target, key: &mut Key) {
        match target {
            Target::Items(items, rest) => {
                for item in items {
                    key.add(b'=', self.source.items[*item].name.as_deref().unwrap_or_default());
                }
                rest.iter().for_each(|segment| key.add(b':', segment));
                if items.iter().any(|item| self.scope.is_ambiguous(*item)) {
                    key.refer(items);
                }
            }
            // A macro may make a path of a module's name.
            Target::Module(module) => {
                let module = &self.source.modules[*module];
                key.add(b'@', &module.path);
                key.refer(&module.items);
            }
            Target::External(path) => key.add(b'e', path),
            Target::Unknown(module, path) => {
                key.add(b'@', &self.source.modules[*module].path);
                key.add(b'u', path);
                key.refer(&self.invocations(*module));
            }
            Target::Conditional(attributes) => key.add(b'c', attributes),
        }
    }

    /// Traits in scope whose methods the item may call without naming them.
    fn traits(&self, module: usize, mentions: &Mentions<'_>, key: &mut Key) {
        let this = &self.source.modules[module];
        let mut targets: Vec<Target> = Vec::new();
        for import in &this.imports {
            let Some(alias) = &import.alias else { continue };
            if !mentions.words.contains(alias.as_str()) {
                let path = import.path.join("::");
                let found = self.scope.resolve(module, &path);
                match found.is_empty() {
                    true => targets.push(Target::External(path)),
                    false => targets.extend(found.iter().cloned()),
                }
            }
        }
        let mut others = BTreeSet::new();
        let mut own = BTreeSet::new();
        let mut modules = vec![module];
        for target in self.scope.globs(module) {
            match target {
                Target::Module(inside) => modules.push(inside),
                // It may have any name.
                Target::External(path) => {
                    others.insert(path + "::*");
                }
                other => self.target(&other, key),
            }
        }
        for inside in modules {
            let items = self.source.modules[inside].items.iter();
            targets.extend(items.map(|item| Target::Items(vec![*item], Vec::new())));
        }
        for target in targets {
            match target {
                Target::Items(items, rest) if rest.is_empty() => {
                    own.extend(items.into_iter().filter(|item| self.has_method(*item, mentions)));
                }
                Target::External(path) | Target::Unknown(_, path)
                    if self.names.may_be_trait(&path) =>
                {
                    others.insert(path);
                }
                _ => {}
            }
        }
        others.iter().for_each(|path| key.add(b't', path));
        let mut own: Vec<usize> = own.into_iter().collect();
        own.sort_by_key(|item| &self.source.items[*item].name);
        for item in own {
            self.target(&Target::Items(vec![item], Vec::new()), key);
        }
    }

    /// Whether an item is a trait with one of the methods that another item calls.
    fn has_method(&self, index: usize, mentions: &Mentions<'_>) -> bool {
        let item = &self.source.items[index];
        let tokens = self.source.tokens(&item.span);
        let is_named = |at: usize| {
            tokens.is(at, "fn")
                && tokens.word(at + 1).is_some_and(|name| mentions.methods.contains(name))
        };
        // A macro in it may declare any.
        let mut range = item.span.range.clone();
        item.kind == ItemKind::Trait
            && item.name.as_deref().is_some_and(|name| !mentions.words.contains(name))
            && range.any(|at| is_named(at) || tokens.is(at, "!"))
    }

    /// Macros of the item's module that may declare what it mentions.
    fn expanded(&self, index: usize, mentions: &Mentions<'_>, key: &mut Key) {
        let module = self.source.items[index].module;
        let invocations = self.invocations(module);
        if !invocations.contains(&index)
            && invocations.iter().any(|one| self.declares(*one, mentions))
        {
            key.refer(&invocations);
        }
    }

    /// Whether a macro may declare one of the words that an item mentions.
    fn declares(&self, invocation: usize, mentions: &Mentions<'_>) -> bool {
        let item = &self.source.items[invocation];
        let called = self.source.tokens(&item.span).word(item.span.range.start);
        let macros = self.scope.macros(item.module, called.unwrap_or_default());
        let mut spans = macros.iter().map(|found| &self.source.items[*found].span);
        // A name that is an argument may be any of them; so may all names of another crate's macro.
        let has_any = macros.is_empty()
            || spans
                .clone()
                .any(|span| declared(self.source.tokens(span), span).any(|name| name == "$"));
        let mut names = declared(self.source.tokens(&item.span), &item.span);
        let tokens = self.source.tokens(&item.span);
        let mut words = item.span.range.clone().filter_map(|at| tokens.word(at));
        let is_mentioned = |name: &str| mentions.words.contains(name);
        names.any(is_mentioned)
            || spans.any(|span| declared(self.source.tokens(span), span).any(is_mentioned))
            || has_any && words.any(|word| !is_keyword(word) && is_mentioned(word))
    }

    fn invocations(&self, module: usize) -> Vec<usize> {
        let items = self.source.modules[module].items.iter().copied();
        items.filter(|item| self.source.items[*item].kind == ItemKind::Invocation).collect()
    }

    /// Adds the files that a part of `file` includes, and what these include.
    ///
    /// A module's own text is left out: documentation shows it. `around` are the files that include
    /// this one.
    fn included(
        &self,
        tokens: &Tokens,
        range: Range<usize>,
        file: &Path,
        around: &mut Vec<PathBuf>,
        key: &mut Key,
    ) {
        let folder = self.source.folder().to_string_lossy();
        for at in range {
            let Some(argument) = includes(tokens, at) else { continue };
            // An argument of a macro is found where the macro is used.
            let Some(name) = constant(tokens, argument, &folder) else { continue };
            let path = file.with_file_name(name);
            if around.contains(&path) {
                continue;
            }
            // A build cannot include a missing file.
            let bytes = fs::read(&path).unwrap_or_default();
            key.bytes.extend(Sha256::digest(&bytes));
            if tokens.is(at, "include")
                && let Ok(text) = String::from_utf8(bytes)
            {
                let tokens = Tokens::of(text);
                around.push(path.clone());
                self.included(&tokens, 0..tokens.tokens.len(), &path, around, key);
                around.pop();
            }
        }
    }

    /// What an item sees of its place, with the macros that it uses.
    fn expansion(&self, item: &Item, mentions: &Mentions<'_>) -> Expansion {
        let tokens = self.source.tokens(&item.span);
        let mut all = Expansion::of(tokens, &item.span.range);
        // `included` has the item's own includes, except those by an argument of an inner macro.
        let folder = self.source.folder().to_string_lossy();
        let arguments = item.span.range.clone().filter_map(|at| includes(tokens, at));
        let mut names = arguments.map(|argument| constant(tokens, argument, &folder));
        all.includes = names.any(|name| name.is_none());
        let macros = mentions.macros.iter().map(|found| &self.source.items[*found]);
        for one in macros.chain([item]) {
            let (tokens, range) = (self.source.tokens(&one.span), &one.span.range);
            if one.kind == ItemKind::Macro {
                all.join(&Expansion::of(tokens, range));
            }
            all.sees_place |= self.names.macros.tracks(tokens, range);
            // Macros that this crate does not declare are another crate's.
            for name in used(tokens, range.clone()) {
                if self.scope.macros(item.module, name).is_empty() {
                    all.join(&self.names.macros.expansion(name));
                }
            }
        }
        all
    }

    /// Adds the files beside `file` that macros may include, except modules.
    fn included_by_macros(&self, names: &BTreeSet<String>, file: &Path, key: &mut Key) {
        let is_module = |path: &Path| self.source.files.iter().any(|file| file.path == path);
        for path in names.iter().map(|name| file.with_file_name(name)) {
            if !is_module(&path)
                && path.is_file()
                && let Ok(bytes) = fs::read(&path)
            {
                key.bytes.extend(Sha256::digest(bytes));
            }
        }
    }

    /// What a crate that others depend on exports by `pub use`.
    fn exports(&self) -> Vec<Key> {
        let mut keys = Vec::new();
        for (index, module) in self.source.modules.iter().enumerate() {
            for import in module.imports.iter().filter(|import| import.is_public) {
                let mut key = Key::default();
                module.conditions.iter().for_each(|condition| self.raw(condition, &mut key));
                key.add(b'@', &module.path);
                key.add(b'c', &import.conditions);
                key.add(b'n', import.alias.as_deref().unwrap_or("*"));
                let path = import.path.join("::");
                let targets = self.scope.resolve(index, &path);
                if targets.is_empty() {
                    key.add(b'e', &path);
                }
                targets.iter().for_each(|target| self.target(target, &mut key));
                keys.push(key);
            }
        }
        keys
    }
}

/// The words behind `fn` and its like.
fn declared<'t>(tokens: &'t Tokens, span: &Span) -> impl Iterator<Item = &'t str> {
    const DECLARING: [&str; 9] =
        ["fn", "struct", "enum", "union", "type", "static", "const", "trait", "mod"];
    let is_declaring = |at: &usize| tokens.word(*at).is_some_and(|word| DECLARING.contains(&word));
    span.range.clone().filter(is_declaring).map(|at| tokens.text(tokens.get(at + 1)))
}

/// Whether a word is no name that a macro could declare.
fn is_keyword(word: &str) -> bool {
    const WORDS: [&str; 37] = [
        "as", "bool", "const", "else", "enum", "f32", "f64", "false", "fn", "for", "i16", "i32",
        "i64", "i8", "if", "impl", "in", "let", "loop", "match", "mod", "mut", "pub", "ref",
        "return", "self", "static", "struct", "true", "type", "u16", "u32", "u64", "u8", "unsafe",
        "usize", "while",
    ];
    WORDS.contains(&word)
}

/// Behind an attribute that is documentation.
fn documentation(tokens: &Tokens, at: usize) -> Option<usize> {
    if tokens.get(at).first != b'#' {
        return None;
    }
    let group = at + 1 + usize::from(tokens.is(at + 1, "!"));
    (tokens.is(group, "[") && tokens.is(group + 1, "doc")).then(|| tokens.after(group))
}

fn add_token(tokens: &Tokens, at: usize, key: &mut Key) {
    let token = tokens.get(at);
    let kind = match token.kind {
        Kind::Punct if token.is_joint => b'+',
        Kind::Punct => b'.',
        _ => b' ',
    };
    key.add(kind, tokens.text(token));
}

/// Whether a field or a method stands here, rather than the end of a range.
fn is_member(tokens: &Tokens, at: usize) -> bool {
    tokens.is(at - 1, ".") && !(at > 1 && tokens.is(at - 2, ".") && tokens.get(at - 2).is_joint)
}

/// Whether a word follows `::`.
fn is_behind_separator(tokens: &Tokens, at: usize) -> bool {
    at > 1 && tokens.is_path_separator(at - 2)
}
