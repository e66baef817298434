//! What a path in a module leads to.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use super::items::{Crate, ItemKind};
use super::macros::Macros;

/// The names that crates declare: by these a crate knows what it imports from another.
#[derive(Default)]
pub struct Names {
    traits: HashSet<String>,
    others: HashSet<String>,
    pub macros: Macros,
}

impl Names {
    /// Adds those of a crate.
    pub fn add(&mut self, source: &Crate) {
        for item in &source.items {
            let Some(name) = &item.name else { continue };
            let names =
                if item.kind == ItemKind::Trait { &mut self.traits } else { &mut self.others };
            names.insert(name.clone());
        }
        for import in source.modules.iter().flat_map(|module| &module.imports) {
            if let (Some(alias), Some(name)) = (&import.alias, import.path.last()) {
                self.macros.add_alias(alias, name);
            }
        }
        // Macros also declare traits.
        for file in &source.files {
            let tokens = &file.tokens;
            let is_trait = |at: &usize| tokens.get(*at).first == b't' && tokens.is(*at, "trait");
            let declared = (0..tokens.tokens.len()).filter(is_trait);
            self.macros.add(tokens);
            self.traits.extend(declared.filter_map(|at| tokens.word(at + 1).map(str::to_owned)));
        }
    }

    /// Whether a path of another crate may lead to a trait.
    pub fn may_be_trait(&self, path: &str) -> bool {
        let name = path.rsplit("::").next().unwrap_or(path);
        let is_constant = name.len() > 1 && !name.contains(|c: char| c.is_lowercase());
        name.starts_with(|c: char| c.is_uppercase())
            && !is_constant
            && (self.traits.contains(name) || !self.others.contains(name))
    }
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// All items of one name in a module, and what follows of the path.
    Items(Vec<usize>, Vec<String>),
    Module(usize),
    /// A path of another crate.
    External(String),
    /// What a module has from a macro, or from nowhere.
    Unknown(usize, String),
    /// A `use` with these attributes.
    Conditional(String),
}

/// The names of a crate.
pub struct Scope<'a> {
    source: &'a Crate,
    /// The items of each name in a module.
    items: HashMap<(usize, &'a str), Vec<usize>>,
    /// How many items of the crate have a name.
    counts: HashMap<&'a str, usize>,
    /// The macros of each name.
    macros: HashMap<&'a str, Vec<usize>>,
    /// What the first word of a path can be.
    known: HashSet<&'a str, BuildHasherDefault<WordHasher>>,
    found: RefCell<Found>,
}

/// A hasher for words, which are short and many: FNV-1a.
#[derive(Default)]
pub struct WordHasher(u64);

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }
}

/// What a path leads to, by its module.
type Found = HashMap<(usize, String), Rc<[Target]>>;
type Visited = HashSet<(usize, String)>;

impl<'a> Scope<'a> {
    pub fn of(source: &'a Crate) -> Self {
        let mut scope = Scope {
            source,
            items: HashMap::new(),
            counts: HashMap::new(),
            macros: HashMap::new(),
            known: ["crate", "self", "super"].into_iter().collect(),
            found: RefCell::new(HashMap::new()),
        };
        for (index, item) in source.items.iter().enumerate() {
            let Some(name) = item.name.as_deref().filter(|name| *name != "_") else { continue };
            scope.items.entry((item.module, name)).or_default().push(index);
            *scope.counts.entry(name).or_default() += 1;
            if item.kind == ItemKind::Macro {
                scope.macros.entry(name).or_default().push(index);
            }
            scope.known.insert(name);
        }
        for module in &source.modules {
            scope.known.insert(&module.name);
            scope.known.extend(module.imports.iter().filter_map(|one| one.alias.as_deref()));
        }
        scope
    }

    /// Whether the crate has several items of a name.
    pub fn is_ambiguous(&self, item: usize) -> bool {
        let name = self.source.items[item].name.as_deref().unwrap_or_default();
        self.counts.get(name).is_some_and(|count| *count > 1)
    }

    /// Whether a path that begins with this word can lead to something of the crate.
    pub fn is_known(&self, word: &str) -> bool {
        self.known.contains(word)
    }

    /// What a path leads to; nothing for what the crate does not declare.
    pub fn resolve(&self, module: usize, path: &str) -> Rc<[Target]> {
        let key = (module, path.to_owned());
        if let Some(found) = self.found.borrow().get(&key) {
            return found.clone();
        }
        let segments: Vec<String> = path.split("::").map(str::to_owned).collect();
        let found: Rc<[Target]> = self.walk(module, &segments, &mut HashSet::new()).into();
        self.found.borrow_mut().insert(key, found.clone());
        found
    }

    /// The macros that a name can mean in a module: its own and imported ones, else those of the
    /// modules around it, else all of that name.
    pub fn macros(&self, module: usize, name: &str) -> Vec<usize> {
        let Some(all) = self.macros.get(name) else { return Vec::new() };
        let is_macro = |item: &usize| all.contains(item);
        let targets = self.resolve(module, name);
        let found = targets.iter().filter_map(|target| match target {
            Target::Items(items, _) => Some(items.iter().copied().filter(is_macro)),
            _ => None,
        });
        let found: Vec<usize> = found.flatten().collect();
        if !found.is_empty() {
            return found;
        }
        let mut around = module;
        while around != 0 {
            around = self.source.modules[around].parent;
            let own = self.items.get(&(around, name)).into_iter().flatten().copied();
            let own: Vec<usize> = own.filter(is_macro).collect();
            if !own.is_empty() {
                return own;
            }
        }
        all.clone()
    }

    /// What a `*` of a module leads to.
    pub fn globs(&self, module: usize) -> Vec<Target> {
        let globs = self.source.modules[module].imports.iter().filter(|one| one.alias.is_none());
        globs.flat_map(|one| self.imported(module, &one.path, &mut HashSet::new())).collect()
    }

    fn walk(&self, module: usize, path: &[String], visited: &mut Visited) -> Vec<Target> {
        let parent = |module: usize| self.source.modules[module].parent;
        let (first, rest) = path.split_first().map_or(("", path), |(first, rest)| (&**first, rest));
        let mut targets = match first {
            "" => vec![Target::External(String::new())],
            "crate" => vec![Target::Module(0)],
            "self" if !rest.is_empty() => vec![Target::Module(module)],
            "super" => vec![Target::Module(parent(module))],
            _ => self.lookup(module, first, visited),
        };
        for segment in rest {
            // Modules share their namespace with all else that can stand in front of `::`.
            if targets.iter().any(|target| matches!(target, Target::Module(_))) {
                targets.retain(|target| !matches!(target, Target::Items(..)));
            }
            let step = |target| match target {
                Target::Module(inside) if segment == "super" => {
                    vec![Target::Module(parent(inside))]
                }
                Target::Module(inside) if segment == "self" => vec![Target::Module(inside)],
                Target::Module(inside) => {
                    let found = self.lookup(inside, segment, visited);
                    match found.is_empty() {
                        true => vec![Target::Unknown(inside, segment.clone())],
                        false => found,
                    }
                }
                Target::Items(items, mut rest) => {
                    rest.push(segment.clone());
                    vec![Target::Items(items, rest)]
                }
                Target::External(path) => vec![Target::External(format!("{path}::{segment}"))],
                Target::Unknown(inside, path) => {
                    vec![Target::Unknown(inside, format!("{path}::{segment}"))]
                }
                conditional => vec![conditional],
            };
            targets = targets.into_iter().flat_map(step).collect();
        }
        targets
    }

    /// The targets of a name in a module.
    fn lookup(&self, module: usize, name: &str, visited: &mut Visited) -> Vec<Target> {
        if !self.is_known(name) || !visited.insert((module, name.to_owned())) {
            return Vec::new();
        }
        let mut found = Vec::new();
        if let Some(items) = self.items.get(&(module, name)) {
            found.push(Target::Items(items.clone(), Vec::new()));
        }
        let this = &self.source.modules[module];
        let children =
            this.children.iter().filter(|child| self.source.modules[**child].name == name);
        found.extend(children.map(|child| Target::Module(*child)));
        for import in this.imports.iter().filter(|one| one.alias.as_deref() == Some(name)) {
            if !import.conditions.is_empty() {
                found.push(Target::Conditional(import.conditions.clone()));
            }
            // `use name;` lifts a macro's name.
            if import.path.as_slice() != [name] {
                found.extend(self.imported(module, &import.path, visited));
            } else if found.is_empty() {
                found.push(Target::External(name.to_owned()));
            }
        }
        if found.is_empty() {
            for glob in this.imports.iter().filter(|one| one.alias.is_none()) {
                for target in self.imported(module, &glob.path, visited) {
                    if let Target::Module(inside) = target {
                        found.extend(self.lookup(inside, name, visited));
                    }
                }
            }
        }
        visited.remove(&(module, name.to_owned()));
        found
    }

    /// What the path of a `use` leads to, in another crate if nowhere else.
    fn imported(&self, module: usize, path: &[String], visited: &mut Visited) -> Vec<Target> {
        let found = self.walk(module, path, visited);
        if found.is_empty() { vec![Target::External(path.join("::"))] } else { found }
    }
}
