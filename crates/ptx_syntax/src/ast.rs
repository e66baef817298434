//! The syntax tree of a PTX module.

use crate::error::SyntaxError;

/// The names of a vector's parts, each with its other one.
pub const LANES: [[&str; 2]; 4] = [["x", "r"], ["y", "g"], ["z", "b"], ["w", "a"]];

/// A whole module.
#[derive(Debug, Default)]
pub struct Module {
    /// The PTX version, such as 8.7; 0 if the text names none.
    pub version: f64,
    /// The architecture it is written for, such as `sm_90a`.
    pub target: String,
    /// Module-scope variables, in order.
    pub variables: Vec<Variable>,
    /// Entries and functions, in order.
    pub functions: Vec<Function>,
}

impl Module {
    /// The number of the architecture it is written for: 90 for `sm_90a`.
    pub fn architecture(&self) -> Option<u32> {
        let number = self.target.strip_prefix("sm_")?;
        number.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse().ok()
    }

    /// Whether it is written for `sm` or newer.
    pub fn targets(&self, sm: u32) -> bool {
        self.architecture().is_some_and(|number| number >= sm)
    }
}

/// The state space a variable is declared in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// `.global`
    Global,
    /// `.const`
    Const,
    /// `.shared`
    Shared,
    /// `.local`
    Local,
    /// `.param`
    Param,
    /// `.shared::cluster`, in which nothing is declared: the shared memory of a cluster's blocks.
    SharedCluster,
}

/// A variable declaration: `.shared .align 16 .b8 tile[4096];`
#[derive(Debug, Clone)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Where it lies.
    pub space: Space,
    /// Bytes of one element, which may be a vector.
    pub element: u64,
    /// Elements; `None` for `name[]`, whose size is chosen at launch.
    pub count: Option<u64>,
    /// Bytes.
    pub align: u64,
    /// Declared `.reg`, as a parameter of a function may be: a scalar that lies nowhere.
    pub register: bool,
    /// Declared `.extern`: memory or size comes from elsewhere.
    pub external: bool,
    /// Initial values from the first byte on; what they do not reach is zero.
    pub init: Vec<Init>,
    /// The line it begins in, from 1.
    pub line: u32,
}

/// One value of an initialiser.
#[derive(Debug, Clone, PartialEq)]
pub enum Init {
    /// The low bytes of a number, and how many of them.
    Bits(u64, u8),
    /// The address of a variable, plus an offset; `generic(name)` says the
    /// same thing for the spaces supported here. It has 8 bytes.
    Address(String, i64),
}

/// `.entry` or `.func`.
#[derive(Debug, Default)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Whether it is a kernel.
    pub entry: bool,
    /// Return parameters of a `.func`.
    pub returns: Vec<Variable>,
    /// Parameters.
    pub params: Vec<Variable>,
    /// `.maxntid`
    pub max_threads: Option<[u32; 3]>,
    /// `.reqntid`
    pub required_threads: Option<[u32; 3]>,
    /// `.reqnctapercluster`
    pub required_cluster: Option<[u32; 3]>,
    /// `.explicitcluster`
    pub explicit_cluster: bool,
    /// `.maxclusterrank`
    pub max_cluster: Option<u32>,
    /// `.maxnreg`
    pub max_registers: Option<u32>,
    /// `.minnctapersm`
    pub min_blocks_per_sm: Option<u32>,
    /// `None` for a declaration, and if there is an `error`.
    pub body: Option<Vec<Statement>>,
    /// What of it cannot be read. Its name and its line are known all the same.
    pub error: Option<SyntaxError>,
    /// The line it begins in, from 1.
    pub line: u32,
}

/// What a function body is made of.
#[derive(Debug)]
pub enum Statement {
    /// `name:`, and the line it is in.
    Label(String, u32),
    /// `.reg .b32 %r<4>;` is `("%r", "b32", Some(4), 1)`.
    Register {
        /// Its name, without a number.
        name: String,
        /// Its type, without the dot.
        ty: String,
        /// How many there are, with numbers from 0; `None` for one without a number.
        count: Option<u32>,
        /// Registers of each: more than one in a vector, whose parts are `name.x`, `name.y`, ...
        lanes: u32,
        /// The line it is in, from 1.
        line: u32,
    },
    /// A variable.
    Variable(Variable),
    /// `name: .branchtargets A, B;`: the labels that a `brx.idx` jumps to.
    BranchTargets {
        /// Its name.
        name: String,
        /// The labels, in the order of their numbers.
        labels: Vec<String>,
        /// The line it begins in, from 1.
        line: u32,
    },
    /// `name: .callprototype (...) _ (...);`: the signature of what an indirect call calls.
    Prototype {
        /// Its name.
        name: String,
        /// Return parameters.
        returns: Vec<Variable>,
        /// Parameters.
        params: Vec<Variable>,
        /// The line it begins in, from 1.
        line: u32,
    },
    /// An instruction.
    Instruction(Instruction),
    /// `{`, which begins a scope of names.
    Open,
    /// `}`, which ends it.
    Close,
}

/// One instruction.
#[derive(Debug, Clone)]
pub struct Instruction {
    /// `@p` is `(p, false)`, `@!p` is `(p, true)`.
    pub guard: Option<(String, bool)>,
    /// The opcode with its modifiers: `ld.global.v4.b32`.
    pub opcode: String,
    /// The operands, destinations first.
    pub operands: Vec<Operand>,
    /// The line it begins in, from 1.
    pub line: u32,
}

/// One operand.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    /// A register, special register, label or variable.
    Name(String),
    /// `!p`
    Not(String),
    /// `a|b`: two destinations.
    Pair(Box<Operand>, Box<Operand>),
    /// An integer.
    Int(i128),
    /// `0f3F800000`, as bits.
    F32(u32),
    /// `0d3FF0000000000000` or a decimal number, as bits.
    F64(u64),
    /// `name+4`, outside of brackets.
    Offset(String, i64),
    /// `[base+offset]`; no base means an absolute address.
    Address(Option<String>, i64),
    /// `[map+offset, {x, y}]`: a tensor and coordinates in it.
    Tensor(String, i64, Vec<Operand>),
    /// `{a, b}`
    Vector(Vec<Operand>),
    /// `(a, b)` of a call.
    List(Vec<Operand>),
}
