//! CUDA C: the frame of a kernel, and the functions that programs call.

use gradchain::DType;

use super::{Bound, Printer};

/// A function that is called otherwise than in a program, or that CUDA lacks.
///
/// Arithmetic, roots and roundings are those of IEEE 754, as on the CPU; of the others the last bits may be others.
pub(super) fn helper(name: &str) -> Option<String> {
    let (function, ty) = name.rsplit_once('_')?;
    if let Some(text) = written(name) {
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
        // NaN has no sign.
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

fn written(name: &str) -> Option<&'static str> {
    Some(match name {
        // As the crate's own, line by line.
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
    double y = fabs(x), up = 1.0, down = 1.0;
    if (y < 1e-200) { up = __longlong_as_double(0x52b0000000000000ll); down = __longlong_as_double(0x39b0000000000000ll); }
    if (y > 1e300) { up = __longlong_as_double(0x3e10000000000000ll); down = 1024.0; }
    y = y * up;
    unsigned long long bits = (unsigned long long)__double_as_longlong(y);
    unsigned long long third = ((bits >> 32) * 0xaaaaaaabull) >> 33;
    double inverse = __longlong_as_double((long long)((0x553ef0ffull - third) << 32));
    for (int k = 0; k < 4; ++k) inverse *= (4.0 - (y * inverse) * (inverse * inverse)) * (1.0 / 3.0);
    double square = inverse * inverse;
    double root = y * square;
    root = (root - (root * root * root - y) * square * (1.0 / 3.0)) * down;
    return fabs(x) < __longlong_as_double(0x7ff0000000000000ll) ? copysign(root, x) : x;
}"
        }
        "of_bf16" => {
            "__device__ float of_bf16(unsigned short x) { return __uint_as_float((unsigned)x << 16); }"
        }
        // To nearest, halves to even; a NaN stays one.
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

pub(super) fn frame(printer: &Printer<'_>, bindings: &[Bound], element: &dyn Fn(&Bound) -> DType) -> String {
    let mut text = String::new();
    for name in &printer.helpers {
        text += &helper(name).unwrap_or_default();
        text += "\n";
    }
    let ty = |bound: &Bound| match element(bound) {
        DType::F64 => "double",
        DType::F32 => "float",
        _ => "unsigned short",
    };
    let parameter = |bound: &Bound| match bound {
        Bound::Numbers => "const unsigned* numbers".to_string(),
        Bound::Wide => "const double* wide".into(),
        Bound::Update => format!("const {}* incoming", ty(bound)),
        Bound::Param => format!("{}* param", ty(bound)),
        Bound::Stored => format!("{}* stored", ty(bound)),
        Bound::Slot(slot) => format!("{}* slot{slot}", ty(bound)),
        Bound::Sums => "double* sums".into(),
    };
    let parameters: Vec<_> = bindings.iter().map(parameter).collect();
    let sums = printer.program.sums().len();
    text += &format!("extern \"C\" __global__ void run({}) {{\n", parameters.join(", "));
    if sums > 0 {
        text += "    __shared__ double lanes[256];\n";
    }
    text += "    unsigned len = numbers[0], thread = threadIdx.x;
    unsigned first = blockIdx.x * 16384u + (thread / 16u) * 1024u + thread % 16u;
";
    for k in 0..sums {
        text += &format!("    double lane{k} = 0.0;\n");
    }
    text += "    for (unsigned j = 0u; j < 64u; ++j) {
        unsigned i = first + 16u * j;
        if (i >= len) break;
";
    text += &printer.body;
    text += "    }\n";
    for k in 0..sums {
        let [tile, piece] = ["lanes[thread + l]", "lanes[16u * l]"].map(|lane| printer.added("total", lane));
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
        for (unsigned l = 1u; l < 16u; ++l) total = {piece};
        sums[blockIdx.x * {sums}u + {k}u] = total;
    }}
    __syncthreads();
"
        );
    }
    text + "}\n"
}
