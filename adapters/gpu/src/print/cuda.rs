//! CUDA C: the frame of a kernel, and the functions that programs call.
//!
//! A kernel processes all leaves with its program, or as many as fit into a launch's arguments.

use gradchain::DType;
use gradchain::program::Op;

use super::{Bound, Printer};

/// Returns a function that CUDA lacks or names differently.
///
/// Arithmetic, roots and roundings follow IEEE 754, as on the CPU; other functions may differ in the last bits.
pub(super) fn library_function(name: &str) -> Option<String> {
    let (function, ty) = name.rsplit_once('_')?;
    if let Some(text) = function_name(name) {
        return Some(text.into());
    }
    let (float, suffix) = match ty {
        "f32" => ("float", "f"),
        "f64" => ("double", ""),
        _ => return None,
    };
    let of_one = match function {
        "abs" => format!("fabs{suffix}(x)"),
        "ln" => format!("log{suffix}(x)"),
        "exp_m1" => format!("expm1{suffix}(x)"),
        "ln_1p" => format!("log1p{suffix}(x)"),
        "sqrt" | "cbrt" | "floor" | "ceil" | "round" | "trunc" | "exp" | "exp2" | "log2" | "log10" | "sin" | "cos"
        | "tan" | "asin" | "acos" | "atan" | "sinh" | "cosh" | "tanh" | "asinh" | "acosh" | "atanh" => {
            format!("{function}{suffix}(x)")
        }
        "recip" => format!("({float})1 / x"),
        "fract" => format!("x - trunc{suffix}(x)"),
        // The sign of NaN is NaN.
        "signum" => format!("x != x ? x : copysign{suffix}(({float})1, x)"),
        "to_degrees" | "to_radians" => return None,
        _ => String::new(),
    };
    if !of_one.is_empty() {
        return Some(format!("__device__ {float} {name}({float} x) {{ return {of_one}; }}"));
    }
    let of_two = match function {
        "max" => format!("fmax{suffix}(x, y)"),
        "min" => format!("fmin{suffix}(x, y)"),
        "powf" => format!("pow{suffix}(x, y)"),
        "rem" => format!("fmod{suffix}(x, y)"),
        "copysign" | "hypot" | "atan2" => format!("{function}{suffix}(x, y)"),
        "mul_add" => {
            return Some(format!(
                "__device__ {float} {name}({float} x, {float} y, {float} z) {{ return fma{suffix}(x, y, z); }}"
            ));
        }
        _ => return None,
    };
    Some(format!("__device__ {float} {name}({float} x, {float} y) {{ return {of_two}; }}"))
}

fn function_name(name: &str) -> Option<&'static str> {
    Some(match name {
        // The same operations as in the crate.
        "cube_root_f32" => {
            "__device__ float cube_root_f32(float x) {
    bool small = fabsf(x) < 1.0f;
    float y = x * (small ? 4722366482869645213696.0f : 0.000244140625f);
    float down = small ? 5.9604644775390625e-8f : 16.0f;
    unsigned bits = __float_as_uint(y);
    unsigned third = ((bits >> 16) & 0x7fffu) * 0x5556u;
    float inverse = __uint_as_float((0x54a10000u - (third & 0xffff0000u)) | (bits & 0x80000000u));
    float square = inverse * inverse;
    float e = 1.0f - y * (square * inverse);
    float root = (y * down) * square;
    float e2 = e * e;
    float low = 0.66666675f + e * 0.5555563f;
    float high = (0.49378547f + e * 0.45240566f) + e2 * (0.43000233f + e * 0.4226455f);
    float near = root + (root * e) * (low + e2 * high);
    return fabsf(e) <= 1.0f ? near : x;
}"
        }
        "cube_root_f64" => {
            "__device__ double cube_root_f64(double x) {
    bool small = fabs(x) < 1.0;
    double y = x * __longlong_as_double(small ? 0x6570000000000000ll : 0x2d30000000000000ll);
    double down = __longlong_as_double(small ? 0x3370000000000000ll : 0x4630000000000000ll);
    unsigned long long bits = (unsigned long long)__double_as_longlong(y);
    unsigned long long third = ((bits >> 32 & 0x7fffffffull) * 0xaaaaaaabull) >> 33;
    double inverse = __longlong_as_double((long long)((0x553ee93full - third) << 32 | (bits & 0x8000000000000000ull)));
    double e = 1.0 - y * (inverse * inverse * inverse);
    double low = 0.9999980156932475 + e * 0.3333284285492914;
    inverse = inverse * (low + (e * e) * (0.22373810553502332 + e * 0.17456019140450738));
    inverse = __longlong_as_double(__double_as_longlong(inverse) & (long long)0xfffffff000000000ull);
    double square = inverse * inverse;
    e = 1.0 - y * (square * inverse);
    double root = (y * down) * square;
    double near = root + (root * e) * (2.0 / 3.0 + e * (5.0 / 9.0 + e * (40.0 / 81.0)));
    return fabs(e) <= 1.0 ? near : x;
}"
        }
        "of_bf16" => "__device__ float of_bf16(unsigned short x) { return __uint_as_float((unsigned)x << 16); }",
        // Rounds to nearest, ties to even; NaN stays NaN.
        "to_bf16" => {
            "__device__ unsigned short to_bf16(float x) {
    unsigned bits = __float_as_uint(x);
    return (unsigned short)(x != x ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}"
        }
        "of_f16" => {
            "__device__ float of_f16(unsigned short x) { float y; asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(y) : \"h\"(x)); return y; }"
        }
        "to_f16" => {
            "__device__ unsigned short to_f16(float x) { unsigned short y; asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(y) : \"f\"(x)); return y; }"
        }
        _ => return None,
    })
}

/// Bytes of a launch's leaf table; arguments may take 4096.
pub(crate) const TABLE: usize = 4064;

/// Returns a leaf's bytes in the table: 8-byte pointers and numbers, three counts, 4-byte numbers.
pub(crate) fn leaf_bytes(eights: usize, fours: usize) -> usize {
    eights * 8 + (3 + fours) * 4 + (3 + fours) % 2 * 4
}

pub(super) fn bytes_of_leaf(bindings: &[Bound], numbers: &[Vec<Op>; 2]) -> usize {
    let pointers = bindings.iter().filter(|bound| !matches!(bound, Bound::Numbers | Bound::Wide)).count();
    leaf_bytes(numbers[1].len() + pointers, numbers[0].len())
}

pub(super) fn frame(printer: &Printer<'_>, bindings: &[Bound], element: &dyn Fn(&Bound) -> DType) -> String {
    let mut text = String::new();
    for name in &printer.helpers {
        text += &library_function(name).unwrap_or_default();
        text += "\n";
    }
    let ty = |bound: &Bound| match element(bound) {
        DType::F64 => "double",
        DType::F32 => "float",
        _ => "unsigned short",
    };
    let [singles, wides] = [0, 1].map(|k| printer.numbers[k].len());
    let doubles = (0..wides).map(|k| ("double".to_string(), format!("wide{k}")));
    let name = |bound: &Bound| {
        Some(match bound {
            Bound::Numbers | Bound::Wide => return None,
            Bound::Update => "incoming".into(),
            Bound::Param => "param".into(),
            Bound::Stored => "stored".into(),
            Bound::Slot(slot) => format!("slot{slot}"),
            Bound::Sums => "sums".into(),
        })
    };
    let pointers = bindings.iter().filter_map(|bound| {
        let name = name(bound)?;
        let read_only = if *bound == Bound::Update { "const " } else { "" };
        let ty = if *bound == Bound::Sums { "double" } else { ty(bound) };
        Some((format!("{read_only}{ty}* __restrict__"), name))
    });
    let counts = ["begin", "len", "sums_at"].map(|name| ("unsigned".to_string(), name.to_string()));
    let floats = (0..singles).map(|k| ("float".to_string(), format!("number{k}")));
    // Ordered by descending alignment, so that the struct has no padding.
    let told: Vec<_> = doubles.chain(pointers).chain(counts).chain(floats).collect();
    let joined = |of: &dyn Fn(&(String, String)) -> String, by: &str| told.iter().map(of).collect::<Vec<_>>().join(by);
    text += &format!(
        "struct Leaf {{ {}; }};\n",
        joined(&|(ty, name)| format!("{} {name}", ty.replace(" __restrict__", "")), "; ")
    );
    let sums = printer.program.sums().len();
    // Separate, because `__restrict__` arguments do not alias.
    let arguments = joined(&|(ty, name)| format!("{ty} {name}"), ", ");
    text += &format!("__device__ __forceinline__ void through({arguments}) {{\n");
    text += "    unsigned group = blockIdx.x - begin, thread = threadIdx.x;\n";
    text += match sums {
        0 => "    unsigned first = group * 1024u + thread;\n",
        _ => {
            "    __shared__ double lanes[256];
    unsigned first = group * 16384u + (thread / 16u) * 1024u + thread % 16u;
"
        }
    };
    for k in 0..sums {
        text += &format!("    double lane{k} = 0.0;\n");
    }
    // A thread's stride, most elements, and early loads: the compiler cannot hoist loads over stores that might alias.
    let (apart, most, at_once) = if sums > 0 { (16, 64, 8) } else { (256, 4, 4) };
    text += &format!("    unsigned count = first < len ? min({most}u, (len - 1u - first) / {apart}u + 1u) : 0u;\n");
    text += &format!("    for (unsigned j = 0u; j < count; j += {at_once}u) {{\n");
    let loaded = bindings.iter().filter_map(|bound| Some((ty(bound), name(bound)?)));
    let loaded: Vec<_> = loaded.filter(|(_, name)| printer.loaded.contains(name)).collect();
    for (ty, name) in &loaded {
        text += &format!("        {ty} {name}_in[{at_once}];\n");
    }
    let each = format!(
        "        #pragma unroll
        for (unsigned k = 0u; k < {at_once}u; ++k) if (j + k < count) {{
        unsigned i = first + {apart}u * (j + k);\n"
    );
    text += &each;
    for (_, name) in &loaded {
        text += &format!("        {name}_in[k] = {name}[i];\n");
    }
    text += "        }\n";
    text += &each;
    text += &printer.body;
    text += "        }\n    }\n";
    for k in 0..sums {
        let [tile, chunk] = ["lanes[thread + l]", "lanes[16u * l]"].map(|lane| printer.added("total", lane));
        text += &format!(
            "    lanes[thread] = lane{k};
    __syncthreads();
    if (thread % 16u == 0u) {{
        double total = lanes[thread];
        for (unsigned l = 1u; l < 16u; ++l) total = {tile};
        lanes[thread] = total;
    }}
    __syncthreads();
    if (thread == 0u) {{
        double total = lanes[0];
        for (unsigned l = 1u; l < 16u; ++l) total = {chunk};
        sums[sums_at + group * {sums}u + {k}u] = total;
    }}
    __syncthreads();
"
        );
    }
    text += "}\n";
    // Groups are numbered across leaves; each finds its leaf by binary search.
    let at_once = TABLE / bytes_of_leaf(bindings, &printer.numbers);
    text += &format!(
        "struct Leaves {{ Leaf leaf[{at_once}]; }};
#if __CUDA_ARCH__ >= 700
#define IN_PLACE __grid_constant__
#else
#define IN_PLACE
#endif
extern \"C\" __global__ void run(const IN_PLACE Leaves leaves, unsigned count) {{
    unsigned low = 0u;
    while (count - low > 1u) {{
        unsigned middle = low + (count - low) / 2u;
        if (leaves.leaf[middle].begin <= blockIdx.x) low = middle; else count = middle;
    }}
    const Leaf& leaf = leaves.leaf[low];
"
    );
    text + &format!("    through({});\n}}\n", joined(&|(_, name)| format!("leaf.{name}"), ", "))
}
