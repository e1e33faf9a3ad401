//! Kernels from programs: one printer, with a back end for each language.
//!
//! Groups of 256 threads process a leaf, one group for each chunk of 16384 elements. Thread `t` processes every
//! sixteenth element of tile `t / 16`, which has 1024 elements: those that the engine accumulates in one lane. Sums are
//! thus added in the engine's order, and are bitwise identical. With CUDA a kernel without sums uses groups of 1024
//! elements, four for each thread: more threads for the same leaf, and contiguous accesses of each 32 threads.

pub(crate) mod cuda;
#[cfg(all(test, feature = "wgpu"))]
mod exact;
mod wgsl;

use std::fmt::Write;

use gradchain::program::{LeafProgram, Op, Program, Type, Value};
use gradchain::{DType, Error, Result};

/// Elements of a group with sums: a chunk.
const CHUNK: usize = 16 * 1024;
/// Elements of a CUDA group without sums.
const FLAT: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Language {
    /// WGSL, for wgpu; with `wide` the device has `f64`, otherwise pairs of `f32` replace it in sums.
    Wgsl { wide: bool },
    /// CUDA C, for NVRTC.
    Cuda,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Bound {
    /// The number of elements, the offset of sums, and [`Numbers::single`], in 32-bit words.
    Numbers,
    /// [`Numbers::wide`].
    Wide,
    Update,
    Param,
    Stored,
    /// A state array, by its index in the program.
    Slot(usize),
    /// Each chunk's sums, beside those of other leaves.
    Sums,
}

/// A step's numbers for a kernel, as bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// The number of elements, the offset of sums, then single-precision numbers.
    pub(crate) single: Vec<u32>,
    pub(crate) wide: Vec<u64>,
}

impl Numbers {
    pub(crate) fn bytes(&self) -> usize {
        self.single.len() * 4 + self.wide.len() * 8
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    pub(crate) text: String,
    pub(crate) bindings: Vec<Bound>,
    /// Step numbers, and constants without a literal, in single and double precision.
    numbers: [Vec<Op>; 2],
    pairs: bool,
    /// Elements per group.
    group: usize,
}

impl Kernel {
    /// Returns the contents of [`Bound::Numbers`] and [`Bound::Wide`].
    pub(crate) fn numbers(&self, [len, sums_at]: [usize; 2], scalars: &[f64]) -> Numbers {
        let number = |op: &Op| match *op {
            Op::Scalar(i) => scalars[i as usize],
            Op::Constant(Value::F32(x)) => x.into(),
            Op::Constant(Value::F64(x)) => x,
            _ => 0.0,
        };
        let single = self.numbers[0].iter().map(|op| (number(op) as f32).to_bits());
        let wide = self.numbers[1].iter().map(number).map(|x| match self.pairs {
            false => x.to_bits(),
            // The nearest `f32` in the lower half, the remainder in the upper half.
            true => u64::from((x as f32).to_bits()) | u64::from(((x - f64::from(x as f32)) as f32).to_bits()) << 32,
        });
        Numbers { single: [len as u32, sums_at as u32].into_iter().chain(single).collect(), wide: wide.collect() }
    }

    pub(crate) fn groups(&self, len: usize) -> usize {
        len.div_ceil(self.group)
    }

    pub(crate) fn sums(&self, bytes: &[u8]) -> Vec<f64> {
        let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let half = |bits: u64| f64::from(f32::from_bits(bits as u32));
        words.map(|bits| if self.pairs { half(bits) + half(bits >> 32) } else { f64::from_bits(bits) }).collect()
    }
}

/// Prints the kernel of a pass for a leaf; returns an error if the language cannot express it.
pub(crate) fn print(language: Language, from_stored: bool, leaf: &LeafProgram) -> Result<Kernel> {
    leaf.require_elementwise()?;
    let LeafProgram { program, dtype, .. } = leaf;
    let given = |op: &Op| program.lines().iter().any(|(line, _)| line == op);
    let mut bindings = Vec::new();
    let comes_in = given(&Op::Update);
    bindings.extend((comes_in && !from_stored).then_some(Bound::Update));
    bindings.extend((given(&Op::Param) || program.param().is_some()).then_some(Bound::Param));
    bindings.extend((program.update().is_some() || comes_in && from_stored).then_some(Bound::Stored));
    let slots = (0..program.slots().len()).filter(|slot| program.reads(*slot) || program.writes(*slot));
    bindings.extend(slots.map(Bound::Slot));
    bindings.extend((!program.sums().is_empty()).then_some(Bound::Sums));

    let mut printer = Printer {
        language,
        program,
        numbers: Default::default(),
        helpers: Vec::new(),
        loaded: Vec::new(),
        body: String::new(),
    };
    let compute = program.dtype();
    let element = |bound: &Bound| match bound {
        Bound::Param => *dtype,
        Bound::Slot(slot) => leaf.arrays[*slot].dtype,
        _ => compute,
    };
    for dtype in bindings.iter().map(element) {
        let refused = match (language, dtype) {
            (Language::Wgsl { wide: false }, DType::F64) => Some("it has no 64-bit floats"),
            (_, DType::F16 | DType::Bf16) if compute == DType::F64 => {
                Some("beside `f64`: kernels cannot convert 64-bit to 16-bit floats with a single rounding")
            }
            _ => None,
        };
        if let Some(why) = refused {
            return Err(refusal(&leaf.path, &format!("{dtype} cannot be on this device: {why}")));
        }
    }
    printer.lines(from_stored, &element)?;
    printer.results(&element);
    let frame = match language {
        Language::Wgsl { .. } => wgsl::frame,
        Language::Cuda => cuda::frame,
    };
    if !printer.numbers[1].is_empty() {
        bindings.insert(0, Bound::Wide);
    }
    bindings.insert(0, Bound::Numbers);
    if language == Language::Cuda {
        let bytes = cuda::bytes_of_leaf(&bindings, &printer.numbers);
        if bytes > cuda::TABLE {
            let problem =
                format!("its arrays and numbers of a pass must have {} bytes at most, found {bytes}", cuda::TABLE);
            return Err(refusal(&leaf.path, &problem));
        }
    }
    let text = frame(&printer, &bindings, &element);
    let pairs = printer.is_pair(Type::F64);
    let group = if language == Language::Cuda && program.sums().is_empty() { FLAT } else { CHUNK };
    Ok(Kernel { text, bindings, numbers: printer.numbers, pairs, group })
}

fn refusal(place: &str, problem: &str) -> Error {
    Error::state(place, problem)
}

struct Printer<'a> {
    language: Language,
    program: &'a Program,
    numbers: [Vec<Op>; 2],
    /// Functions that the language lacks or names differently.
    helpers: Vec<String>,
    /// Arrays whose elements are loaded in advance.
    loaded: Vec<String>,
    body: String,
}

impl Printer<'_> {
    fn is_cuda(&self) -> bool {
        self.language == Language::Cuda
    }

    fn is_pair(&self, ty: Type) -> bool {
        ty == Type::F64 && self.language == (Language::Wgsl { wide: false })
    }

    fn type_name(&self, ty: Type) -> &'static str {
        match (self.is_cuda(), ty) {
            (true, Type::F32) => "float",
            (true, Type::F64) => "double",
            (true, Type::Count) => "unsigned",
            (false, Type::F64) if self.is_pair(ty) => "vec2<f32>",
            (_, ty) => ty.name(),
        }
    }

    /// Adds a function to the prelude and returns its name.
    fn helper(&mut self, name: &str, ty: Type) -> String {
        let ty = if self.is_pair(ty) { "pair" } else { ty.name() };
        self.helper_named(format!("{name}_{ty}"))
    }

    fn helper_named(&mut self, name: String) -> String {
        if !self.helpers.contains(&name) {
            self.helpers.push(name.clone());
        }
        name
    }

    fn line(&mut self, ty: Type, line: usize, value: &str) {
        let ty = if self.is_cuda() { self.type_name(ty) } else { "let" };
        writeln!(self.body, "        {ty} t{line} = {value};").expect("a text has room");
    }

    fn number(&mut self, op: Op, ty: Type) -> String {
        let numbers = &mut self.numbers[usize::from(ty == Type::F64)];
        numbers.push(op);
        let (place, at) = (numbers.len() - 1, numbers.len() + 1);
        match (ty, self.is_cuda()) {
            (Type::F64, false) => format!("wide[{place}]"),
            (_, false) => format!("bitcast<f32>(numbers[{at}])"),
            (Type::F64, true) => format!("wide{place}"),
            (_, true) => format!("number{place}"),
        }
    }

    fn lines(&mut self, from_stored: bool, element: &dyn Fn(&Bound) -> DType) -> Result<()> {
        for (line, (op, ty)) in self.program.lines().iter().enumerate() {
            let value = match *op {
                Op::Update => self.element(if from_stored { "stored" } else { "incoming" }),
                // A write-only state array has no input.
                Op::Slot(slot) if !self.program.reads(slot as usize) => continue,
                Op::Param => self.load("param", element(&Bound::Param), *ty),
                Op::Slot(slot) => self.load(&format!("slot{slot}"), element(&Bound::Slot(slot as usize)), *ty),
                Op::Scalar(_) => self.number(*op, *ty),
                Op::Constant(value) => match self.literal(value) {
                    Some(literal) => literal,
                    None => self.number(*op, *ty),
                },
                op => self.operation(line, op, *ty)?,
            };
            self.line(*ty, line, &value);
        }
        Ok(())
    }

    fn literal(&self, value: Value) -> Option<String> {
        let plain = |x: f64, normal: bool| normal || x == 0.0 && x.is_sign_positive();
        Some(match (value, self.is_cuda()) {
            (Value::F32(x), true) => format!("__uint_as_float(0x{:08x}u)", x.to_bits()),
            (Value::F64(x), true) => format!("__longlong_as_double(0x{:016x}ll)", x.to_bits()),
            (Value::F32(x), false) if plain(x.into(), x.is_normal()) => format!("f32({x:e}f)"),
            (Value::F64(x), false) if !self.is_pair(Type::F64) && plain(x, x.is_normal()) => format!("f64({x:e}lf)"),
            (Value::Bool(yes), _) => yes.to_string(),
            (Value::Count(n), _) => format!("{n}u"),
            _ => return None,
        })
    }

    /// Returns an element; CUDA kernels load several before the first use.
    fn element(&mut self, array: &str) -> String {
        if !self.is_cuda() {
            return format!("{array}[i]");
        }
        if self.loaded.iter().all(|known| known != array) {
            self.loaded.push(array.into());
        }
        format!("{array}_in[k]")
    }

    fn load(&mut self, array: &str, dtype: DType, ty: Type) -> String {
        match (dtype, ty) {
            (DType::F16 | DType::Bf16, _) => {
                let function = self.helper_named(format!("of_{dtype}"));
                let bits = if self.is_cuda() { self.element(array) } else { wgsl::half(array) };
                format!("{function}({bits})")
            }
            (DType::F64, Type::F32) | (DType::F32, Type::F64) => {
                format!("{}({})", self.type_name(ty), self.element(array))
            }
            _ => self.element(array),
        }
    }

    /// Returns a number as an element of the dtype to which it has been rounded.
    fn store(&mut self, line: u32, dtype: DType) -> String {
        let ty = self.program.lines()[line as usize].1;
        match (dtype, ty) {
            (DType::F16 | DType::Bf16, _) => {
                let function = self.helper_named(format!("to_{dtype}"));
                format!("{function}(t{line})")
            }
            (DType::F64, Type::F32) => format!("{}(t{line})", self.type_name(Type::F64)),
            (DType::F32, Type::F64) => format!("{}(t{line})", self.type_name(Type::F32)),
            _ => format!("t{line}"),
        }
    }

    fn operation(&mut self, line: usize, op: Op, ty: Type) -> Result<String> {
        let of = |line: u32| self.program.lines()[line as usize].1;
        let pair = |op: Op| op.operands().any(|line| self.is_pair(of(line)));
        Ok(match op {
            Op::Widen(a) if self.is_pair(ty) => format!("vec2(t{a}, 0.0f)"),
            Op::Widen(a) => format!("{}(t{a})", self.type_name(ty)),
            Op::Round(a, DType::F32) => format!("{0}({1}(t{a}))", self.type_name(ty), self.type_name(Type::F32)),
            Op::Round(..) if ty == Type::F64 => {
                return Err(refusal(
                    "a program",
                    "kernels cannot convert 64-bit to 16-bit floats with a single rounding",
                ));
            }
            Op::Round(a, dtype) => {
                let (to, of) = (self.helper_named(format!("to_{dtype}")), self.helper_named(format!("of_{dtype}")));
                format!("{of}({to}(t{a}))")
            }
            Op::Unary(op, a) if op.is_operator() => format!("-t{a}"),
            Op::Unary(op, a) => format!("{}(t{a})", self.function(op.name(), ty)?),
            Op::Binary(binary, a, b) if self.is_quotient(binary.name(), ty) => {
                format!("{}(t{a}, t{b})", self.function("div", ty)?)
            }
            Op::Binary(binary, a, b) if !pair(op) && self.may_be_reassociated(line) => {
                format!("{}(t{a} {} t{b})", self.helper("rounded", ty), binary.name())
            }
            Op::Binary(binary, a, b) if binary.is_operator() && !pair(op) && binary.name() != "%" => {
                format!("t{a} {} t{b}", binary.name())
            }
            Op::Binary(op, a, b) => {
                let name = match op.name() {
                    "+" => "add",
                    "-" => "sub",
                    "*" => "mul",
                    "/" => "div",
                    "%" => "rem",
                    name => name,
                };
                format!("{}(t{a}, t{b})", self.function(name, ty)?)
            }
            Op::MulAdd(a, b, c) => format!("{}(t{a}, t{b}, t{c})", self.function("mul_add", ty)?),
            Op::Powi(a, n) => self.power(a, n, ty)?,
            Op::Compare(comparison, a, b) if pair(op) => {
                let name = match comparison.name() {
                    "<" => "less",
                    "<=" => "less_or_equal",
                    _ => "equal",
                };
                format!("{}(t{a}, t{b})", self.function(name, Type::F64)?)
            }
            Op::Compare(comparison, a, b) => format!("t{a} {} t{b}", comparison.name()),
            Op::Select(c, a, b) if self.is_cuda() => format!("t{c} ? t{a} : t{b}"),
            Op::Select(c, a, b) => format!("select(t{b}, t{a}, t{c})"),
            other => return Err(refusal("a program", &format!("{other:?} has no translation"))),
        })
    }

    /// Returns true for `f32` quotients in WGSL, which may round differently from IEEE 754.
    fn is_quotient(&self, name: &str, ty: Type) -> bool {
        name == "/" && ty == Type::F32 && !self.is_cuda()
    }

    /// Returns true if a WGSL compiler may combine the line with its uses or a sum over elements.
    ///
    /// It may fuse a product with a sum (NVIDIA's does), replace `p + (x - p)` by `x`, and reassociate three operands
    /// (lavapipe's does).
    fn may_be_reassociated(&self, line: usize) -> bool {
        let lines = self.program.lines();
        let sign = |(op, _): &(Op, Type)| match op {
            Op::Binary(op, ..) => ["+", "*", "-"].into_iter().find(|sign| *sign == op.name()),
            _ => None,
        };
        let uses = |user: &&(Op, Type)| user.0.operands().any(|operand| operand as usize == line);
        let summed = self.program.sums().iter().any(|sum| *sum as usize == line);
        match sign(&lines[line]) {
            None => false,
            _ if self.is_cuda() => false,
            Some("-") => true,
            Some("*") => summed || lines.iter().any(|user| uses(&user)),
            _ => summed || lines.iter().filter(uses).any(|user| matches!(sign(user), Some("+" | "-"))),
        }
    }

    fn function(&mut self, name: &str, ty: Type) -> Result<String> {
        let called = self.helper(name, ty);
        let known = match self.language {
            Language::Wgsl { .. } => wgsl::library_function(&called),
            Language::Cuda => cuda::library_function(&called),
        };
        match known {
            Some(_) => Ok(called),
            None => Err(refusal(&format!("`{name}` of {}", ty.name()), "shaders of this device have no such function")),
        }
    }

    /// Prints repeated squaring, in the order of the library that Rust calls.
    fn power(&mut self, a: u32, n: i32, ty: Type) -> Result<String> {
        let one = self.type_name(ty);
        let (mut result, mut square, mut left) = (None::<String>, format!("t{a}"), n.unsigned_abs());
        while left > 0 {
            if left % 2 == 1 {
                result = Some(result.map_or(square.clone(), |result| format!("({result} * {square})")));
            }
            left /= 2;
            if left > 0 {
                square = format!("({square} * {square})");
            }
        }
        let mut result = result.unwrap_or_else(|| format!("{one}(1)"));
        if !self.is_cuda() && !self.is_pair(ty) {
            result = format!("{}({result})", self.helper("rounded", ty));
        }
        Ok(match n < 0 {
            true if self.is_quotient("/", ty) => format!("{}({one}(1), {result})", self.function("div", ty)?),
            true => format!("{one}(1) / {result}"),
            false => result,
        })
    }

    fn results(&mut self, element: &dyn Fn(&Bound) -> DType) {
        let mut writes: Vec<(String, u32, DType)> = Vec::new();
        for (slot, line) in self.program.new_slots().iter().enumerate().filter(|(slot, _)| self.program.writes(*slot)) {
            writes.push((format!("slot{slot}"), *line, element(&Bound::Slot(slot))));
        }
        writes.extend(self.program.update().map(|line| ("stored".into(), line, element(&Bound::Stored))));
        writes.extend(self.program.param().map(|line| ("param".into(), line, element(&Bound::Param))));
        for (array, line, dtype) in writes {
            let value = self.store(line, dtype);
            let stored = match dtype {
                DType::F16 | DType::Bf16 if !self.is_cuda() => wgsl::store_half(&array, &value),
                _ => format!("{array}[i] = {value};"),
            };
            writeln!(self.body, "        {stored}").expect("a text has room");
        }
        for (sum, line) in self.program.sums().iter().enumerate() {
            let ty = self.program.lines()[*line as usize].1;
            let added = match (ty, self.is_pair(Type::F64)) {
                (Type::Count, true) => format!("vec2(f32(t{line}), 0.0f)"),
                (Type::Count, false) => format!("{}(t{line})", self.type_name(Type::F64)),
                _ => format!("t{line}"),
            };
            let added = self.added(&format!("lane{sum}"), &added);
            writeln!(self.body, "        lane{sum} = {added};").expect("a text has room");
        }
    }

    fn added(&self, a: &str, b: &str) -> String {
        if self.is_pair(Type::F64) { format!("add_pair({a}, {b})") } else { format!("{a} + {b}") }
    }
}
