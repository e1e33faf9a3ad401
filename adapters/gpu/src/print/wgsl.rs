//! WGSL: the frame of a kernel, and the functions that programs call.

use gradchain::DType;
use gradchain::program::Type;

use super::{Bound, Printer};

/// Returns a function that WGSL lacks or names differently.
///
/// `f32` quotients and roots are corrected to the CPU's; other built-in functions have the device's accuracy.
pub(super) fn library_function(name: &str) -> Option<String> {
    let (function, ty) = name.rsplit_once('_')?;
    if let Some(text) = function_name(name) {
        return Some(text.into());
    }
    let built_in = match function {
        "ln" => "log",
        "abs" | "sqrt" | "floor" | "ceil" | "trunc" | "exp" | "exp2" | "log2" | "sin" | "cos" | "tan" | "asin"
        | "acos" | "atan" | "sinh" | "cosh" | "tanh" | "asinh" | "acosh" | "atanh" => function,
        _ => "",
    };
    let of_two = match function {
        // If one operand is NaN, returns the other.
        "max" => "select(select(y, x, x > y), x, y != y)",
        "min" => "select(select(y, x, x < y), x, y != y)",
        "powf" => "pow(x, y)",
        "rem" => "x - y * trunc(x / y)",
        _ => "",
    };
    // Shaders have only arithmetic, roots and roundings for `f64`.
    let wide = matches!(function, "abs" | "sqrt" | "floor" | "ceil" | "trunc" | "max" | "min" | "rem");
    match ty {
        "pair" => None,
        "f64" if !wide && !matches!(function, "recip" | "round" | "fract") => None,
        _ if !built_in.is_empty() => Some(format!("fn {name}(x: {ty}) -> {ty} {{ return {built_in}(x); }}")),
        _ if !of_two.is_empty() => Some(format!("fn {name}(x: {ty}, y: {ty}) -> {ty} {{ return {of_two}; }}")),
        _ => match function {
            "recip" if ty == "f32" => Some("fn recip_f32(x: f32) -> f32 { return div_f32(1.0f, x); }".into()),
            "recip" => Some(format!("fn {name}(x: {ty}) -> {ty} {{ return {ty}(1) / x; }}")),
            "fract" => Some(format!("fn {name}(x: {ty}) -> {ty} {{ return x - trunc(x); }}")),
            // Ties round away from zero.
            "round" => Some(format!(
                "fn {name}(x: {ty}) -> {ty} {{\n    let whole = trunc(x);\n    \
                 return select(whole, whole + sign(x), abs(x - whole) >= {ty}(0.5));\n}}"
            )),
            _ => None,
        },
    }
}

/// Returns the bits of a 16-bit element. Two threads share each 32-bit word.
pub(super) fn half(array: &str) -> String {
    format!("(atomicLoad(&{array}[i / 2u]) >> (16u * (i % 2u))) & 0xffffu")
}

/// Toggles the differing bits of a 16-bit element; no other thread writes this half of the word.
pub(super) fn store_half(array: &str, bits: &str) -> String {
    format!("atomicXor(&{array}[i / 2u], (({}) ^ {bits}) << (16u * (i % 2u)));", half(array))
}

fn function_name(name: &str) -> Option<&'static str> {
    Some(match name {
        "of_bf16" => "fn of_bf16(x: u32) -> f32 { return bitcast<f32>(x << 16u); }",
        // Rounds to nearest, ties to even; NaN stays NaN.
        "to_bf16" => {
            "fn to_bf16(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
    return select(rounded, (bits >> 16u) | 0x40u, (bits & 0x7fffffffu) > 0x7f800000u);
}"
        }
        // Works on bits, because WGSL leaves the rounding of its conversions open. Subnormals are multiples of the
        // smallest one.
        "of_f16" => {
            "fn of_f16(x: u32) -> f32 {
    let exponent = (x >> 10u) & 31u;
    let digits = x & 0x3ffu;
    let subnormal = bitcast<u32>(f32(digits) * 5.960464477539063e-8f);
    let large = select((exponent + 112u) << 23u, 0x7f800000u, exponent == 31u) | (digits << 13u);
    return bitcast<f32>(select(large, subnormal, exponent == 0u) | ((x & 0x8000u) << 16u));
}"
        }
        // Adding one half puts a subnormal's rounded digits into the low bits.
        "to_f16" => {
            "fn to_f16(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    let subnormal = bitcast<u32>(bitcast<f32>(size) + 0.5f) - 0x3f000000u;
    let normal = (size - 0x38000000u + 0xfffu + ((size >> 13u) & 1u)) >> 13u;
    let finite = select(normal, subnormal, size < 0x38800000u);
    let large = select(0x7c00u, 0x7e00u | ((size >> 13u) & 0x3ffu), size > 0x7f800000u);
    return select(finite, large, size >= 0x47800000u) | ((bits >> 16u) & 0x8000u);
}"
        }
        "copysign_f32" => {
            "fn copysign_f32(x: f32, y: f32) -> f32 {
    return bitcast<f32>((bitcast<u32>(x) & 0x7fffffffu) | (bitcast<u32>(y) & 0x80000000u));
}"
        }
        // Works on bits: the result has the sign of a zero, and NaN stays NaN.
        "signum_f32" => {
            "fn signum_f32(x: f32) -> f32 {
    return select(bitcast<f32>(0x3f800000u | (bitcast<u32>(x) & 0x80000000u)), x, x != x);
}"
        }
        // The same operations as in the crate.
        "cube_root_f32" => {
            "fn cube_root_f32(x: f32) -> f32 {
    let small = abs(x) < 1.0f;
    let up = select(2.44140625e-4f, 4.722366482869645e21f, small);
    let down = select(16.0f, 5.960464477539063e-8f, small);
    let y = x * up;
    let bits = bitcast<u32>(y);
    let third = ((bits >> 16u) & 0x7fffu) * 0x5556u;
    let inverse = bitcast<f32>((0x54a10000u - (third & 0xffff0000u)) | (bits & 0x80000000u));
    let square = inverse * inverse;
    let e = 1.0f - y * (square * inverse);
    let root = (y * down) * square;
    let e2 = e * e;
    let low = 0.66666675f + e * 0.5555563f;
    let high = (0.49378547f + e * 0.45240566f) + e2 * (0.43000233f + e * 0.4226455f);
    let near = root + (root * e) * (low + e2 * high);
    return select(x, near, abs(e) <= 1.0f);
}"
        }
        // Compilers may replace `(a + b) - a` by `b`, and `a / c + b / c` by `(a + b) / c`. So rounded values pass
        // through a sign flip that never happens, since a leaf has less than 2³¹ elements, but that compilers must
        // expect.
        "rounded_f32" => {
            "fn rounded_f32(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ (numbers[0] >> 31u)); }"
        }
        "rounded_f64" => "fn rounded_f64(x: f64) -> f64 { return select(x, -x, (numbers[0] >> 31u) > 0u); }",
        // Corrects a quotient: the remainder determines the nearest float. Operands are scaled to between 1 and 2,
        // against overflow and underflow. The exact quotient is never half-way between two floats, nor nearer to a
        // power of two than to the float below that. Quotients with subnormal operands or results stay as the device
        // computes them. Zero and infinite operands are handled here, because some devices fail for infinity divided by
        // a large number.
        "div_f32" => {
            "fn div_f32(x: f32, y: f32) -> f32 {
    let bits = vec2(bitcast<u32>(x), bitcast<u32>(y));
    let sign = (bits.x ^ bits.y) & 0x80000000u;
    let exponents = vec2<i32>((bits >> vec2(23u)) & vec2(255u));
    let of_one = (bits & vec2(0x7fffffu)) | vec2(0x3f800000u);
    let a = bitcast<f32>(of_one.x);
    let b = bitcast<f32>(of_one.y);
    var q = rounded_f32(a / b);
    q = rounded_f32(q + rounded_f32(remainder_f32(a, q, b) / b));
    let rest = remainder_f32(a, q, b);
    let limit = bitcast<f32>((bitcast<u32>(q) & 0x7f800000u) - 0x0c000000u) * b;
    q = bitcast<f32>(bitcast<u32>(q) + select(0u, select(1u, 0xffffffffu, rest < 0.0f), abs(rest) > limit));
    let exponent = exponents.x - exponents.y + i32(bitcast<u32>(q) >> 23u);
    let normal = min(exponents.x, exponents.y) > 0 && max(exponents.x, exponents.y) < 255 && exponent > 0;
    let finite = (bitcast<u32>(q) & 0x7fffffu) | (u32(exponent) << 23u);
    let exact = select(finite, 0x7f800000u, exponent > 254) | sign;
    let sizes = bits & vec2(0x7fffffffu);
    let none = max(sizes.x, sizes.y) > 0x7f800000u || sizes.x == sizes.y && (sizes.x == 0u || sizes.x == 0x7f800000u);
    let infinite = sizes.x == 0x7f800000u || sizes.y == 0u;
    let special = select(select(0u, 0x7f800000u, infinite) | sign, 0x7fc00000u, none);
    let other = select(x / y, bitcast<f32>(special), none || infinite || sizes.x == 0u || sizes.y == 0x7f800000u);
    return select(other, bitcast<f32>(exact), normal);
}"
        }
        // The same for operands from 1 to 4.
        "sqrt_f32" => {
            "fn sqrt_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let exponent = bits >> 23u;
    let odd = 1u - (exponent & 1u);
    let a = bitcast<f32>((bits & 0x7fffffu) | ((127u + odd) << 23u));
    var root = rounded_f32(sqrt(a));
    root = rounded_f32(root + rounded_f32(remainder_f32(a, root, root) / (root + root)));
    let rest = remainder_f32(a, root, root);
    let limit = root * 1.1920928955078125e-7f;
    let step = select(select(0u, 1u, rest > limit), 0xffffffffu, rest <= -limit);
    let exact = ((bitcast<u32>(root) + step) & 0x7fffffu) | (((exponent + 127u - odd) / 2u) << 23u);
    let other = select(sqrt(x), x, (bits & 0x7fffffffu) == 0u || bits == 0x7f800000u);
    return select(other, bitcast<f32>(exact), exponent > 0u && exponent < 255u);
}"
        }
        // `a - q·b`, after Dekker: exact if the result has at most 24 significant bits.
        "remainder_f32" => {
            "fn remainder_f32(a: f32, q: f32, b: f32) -> f32 {
    let product = product_f32(q, b);
    return rounded_f32(rounded_f32(a - product.x) - product.y);
}"
        }
        // A product and its rounding error, after Dekker.
        "product_f32" => {
            "fn product_f32(a: f32, b: f32) -> vec2<f32> {
    let product = rounded_f32(a * b);
    let high = vec2(high_half(a), high_half(b));
    let low = vec2(rounded_f32(a - high.x), rounded_f32(b - high.y));
    let cross = rounded_f32(rounded_f32(high.x * high.y) - product) + rounded_f32(high.x * low.y);
    return vec2(product, rounded_f32(rounded_f32(cross) + rounded_f32(low.x * high.y)) + rounded_f32(low.x * low.y));
}"
        }
        "sum_of_f32" => {
            "fn sum_of_f32(a: f32, b: f32) -> vec2<f32> {
    let sum = rounded_f32(a + b);
    return vec2(sum, b - rounded_f32(sum - a));
}"
        }
        "add_pair" => {
            "fn add_pair(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    let sum = rounded_f32(a.x + b.x);
    let other = rounded_f32(sum - a.x);
    let lost = rounded_f32(a.x - rounded_f32(sum - other)) + rounded_f32(b.x - other);
    return sum_of_f32(sum, lost + (a.y + b.y));
}"
        }
        "sub_pair" => "fn sub_pair(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> { return add_pair(a, -b); }",
        "high_half" => {
            "fn high_half(x: f32) -> f32 {
    let large = rounded_f32(x * 4097.0f);
    return rounded_f32(large - rounded_f32(large - x));
}"
        }
        "mul_pair" => {
            "fn mul_pair(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    let product = product_f32(a.x, b.x);
    return sum_of_f32(product.x, product.y + (a.x * b.y + a.y * b.x));
}"
        }
        "div_pair" => {
            "fn div_pair(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    let first = a.x / b.x;
    let rest = sub_pair(a, mul_pair(vec2(first, 0.0f), b));
    return sum_of_f32(first, rest.x / b.x);
}"
        }
        "sqrt_pair" => {
            "fn sqrt_pair(a: vec2<f32>) -> vec2<f32> {
    let root = sqrt(a.x);
    let rest = sub_pair(a, mul_pair(vec2(root, 0.0f), vec2(root, 0.0f)));
    return select(vec2(root, 0.0f), sum_of_f32(root, rest.x / (root + root)), root > 0.0f);
}"
        }
        "abs_pair" => "fn abs_pair(a: vec2<f32>) -> vec2<f32> { return select(a, -a, a.x < 0.0f); }",
        "less_pair" => {
            "fn less_pair(a: vec2<f32>, b: vec2<f32>) -> bool { return a.x < b.x || a.x == b.x && a.y < b.y; }"
        }
        "less_or_equal_pair" => {
            "fn less_or_equal_pair(a: vec2<f32>, b: vec2<f32>) -> bool { return a.x < b.x || a.x == b.x && a.y <= b.y; }"
        }
        "equal_pair" => "fn equal_pair(a: vec2<f32>, b: vec2<f32>) -> bool { return a.x == b.x && a.y == b.y; }",
        "max_pair" => {
            "fn max_pair(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> { return select(a, b, a.x < b.x || a.x == b.x && a.y < b.y); }"
        }
        "min_pair" => {
            "fn min_pair(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> { return select(a, b, b.x < a.x || a.x == b.x && b.y < a.y); }"
        }
        _ => return None,
    })
}

const OF_PAIRS: [&str; 7] =
    ["rounded_f32", "sum_of_f32", "add_pair", "sub_pair", "high_half", "product_f32", "mul_pair"];
const EXACT: [&str; 5] = ["rounded_f32", "high_half", "product_f32", "remainder_f32", "div_f32"];

pub(super) fn frame(printer: &Printer<'_>, bindings: &[Bound], element: &dyn Fn(&Bound) -> DType) -> String {
    let sum = printer.type_name(Type::F64);
    let mut text = String::new();
    let stored = |bound: &Bound| match element(bound) {
        DType::F16 | DType::Bf16 => "atomic<u32>".to_string(),
        dtype => dtype.to_string(),
    };
    for (at, bound) in bindings.iter().enumerate() {
        let (access, name, ty) = match bound {
            Bound::Numbers => ("read", "numbers".into(), "u32".to_string()),
            Bound::Wide => ("read", "wide".into(), sum.into()),
            Bound::Update => ("read", "incoming".into(), element(bound).to_string()),
            Bound::Param => ("read_write", "param".into(), stored(bound)),
            Bound::Stored => ("read_write", "stored".into(), element(bound).to_string()),
            Bound::Slot(slot) => ("read_write", format!("slot{slot}"), stored(bound)),
            Bound::Sums => ("read_write", "sums".into(), sum.into()),
        };
        text += &format!("@group(0) @binding({at}) var<storage, {access}> {name}: array<{ty}>;\n");
    }
    let sums = printer.program.sums().len();
    if sums > 0 {
        text += &format!("var<workgroup> lanes: array<{sum}, 256>;\n");
    }
    let given = |name: &str| printer.helpers.iter().any(|library_function| library_function == name);
    let pairs = if printer.is_pair(Type::F64) { &OF_PAIRS[..] } else { &[] };
    let exact = if ["div_f32", "sqrt_f32", "recip_f32"].into_iter().any(given) { &EXACT[..] } else { &[] };
    let mut helpers: Vec<&str> = Vec::new();
    for name in pairs.iter().chain(exact).copied().chain(printer.helpers.iter().map(String::as_str)) {
        if !helpers.contains(&name) {
            helpers.push(name);
        }
    }
    for name in helpers {
        text += &library_function(name).unwrap_or_default();
        text += "\n";
    }
    text += "@compute @workgroup_size(256)
fn run(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let len = numbers[0];
";
    // Without sums, adjacent threads process adjacent elements.
    let (first, apart) = match sums {
        0 => ("thread", 256),
        _ => ("(thread / 16u) * 1024u + thread % 16u", 16),
    };
    text += &format!("    let first = group.x * 16384u + {first};\n");
    for k in 0..sums {
        text += &format!("    var lane{k} = {sum}();\n");
    }
    text += &format!(
        "    for (var j = 0u; j < 64u; j++) {{
        let i = first + {apart}u * j;
        if (i < len) {{
"
    );
    text += &printer.body;
    text += "        }\n    }\n";
    for k in 0..sums {
        let [tile, chunk] = ["lanes[thread + l]", "lanes[16u * l]"].map(|lane| printer.added("total", lane));
        text += &format!(
            "    lanes[thread] = lane{k};
    workgroupBarrier();
    if (thread % 16u == 0u) {{
        var total = lanes[thread];
        for (var l = 1u; l < 16u; l++) {{ total = {tile}; }}
        lanes[thread] = total;
    }}
    workgroupBarrier();
    if (thread == 0u) {{
        var total = lanes[0];
        for (var l = 1u; l < 16u; l++) {{ total = {chunk}; }}
        sums[numbers[1] + group.x * {sums}u + {k}u] = total;
    }}
    workgroupBarrier();
"
        );
    }
    text + "}\n"
}
