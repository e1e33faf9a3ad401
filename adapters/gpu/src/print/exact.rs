//! Quotients and roots in WGSL equal a CPU's, also on a device with errors in the last bits.

use super::Numbers;
use super::wgsl::library_function;
use crate::backend::{Backend, Kernels, Launch};
use crate::{Device, Wgpu};

const EXACT_FUNCTIONS: [&str; 6] = ["rounded_f32", "high_half", "product_f32", "remainder_f32", "div_f32", "sqrt_f32"];
const ONE_BIT: f64 = 1.192_092_895_507_812_5e-7;

/// Emulates a device with this error of quotients and roots, in units in the last place.
fn with_ulp_error(bits: f64) -> String {
    let source = EXACT_FUNCTIONS.map(|name| library_function(name).unwrap()).join("\n");
    let factor = format!("{:?}f", (1.0 + bits * ONE_BIT) as f32);
    let each = ["(a / b", "remainder_f32(a, q, b) / b", "(sqrt(a)", "/ (root + root)"];
    each.iter().fold(source, |source, exact| {
        assert!(source.contains(exact), "{exact}");
        source.replace(exact, &format!("{exact} * {factor}"))
    })
}

fn kernel(functions: &str) -> String {
    format!(
        "@group(0) @binding(0) var<storage, read> numbers: array<u32>;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read_write> quotient: array<f32>;
@group(0) @binding(4) var<storage, read_write> root: array<f32>;
{functions}
@compute @workgroup_size(256)
fn run(@builtin(global_invocation_id) id: vec3<u32>) {{
    if (id.x >= numbers[0]) {{ return; }}
    quotient[id.x] = div_f32(x[id.x], y[id.x]);
    root[id.x] = sqrt_f32(x[id.x]);
}}
"
    )
}

/// Returns numbers from 1 to 4 with roots nearest to half-way between two floats.
fn roots_near_half_way() -> Vec<f32> {
    let all = (1.0_f32.to_bits()..4.0_f32.to_bits()).map(f32::from_bits);
    let from_half_way = |x: f32| ((f64::from(x).sqrt() / ONE_BIT).fract() - 0.5).abs();
    all.filter(|x| from_half_way(*x) < 4e-6).collect()
}

fn next_of(x: f32) -> f32 {
    f32::from_bits(x.to_bits() + 1)
}

/// Returns numbers of all magnitudes, and quotients nearest to half-way between two floats.
fn pairs(n: usize) -> [Vec<f32>; 2] {
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as u32
    };
    let special =
        [0.0, -0.0, 1.0, -1.0, 2.0, f32::MAX, f32::MIN_POSITIVE, f32::INFINITY, f32::NAN, 1.0 - f32::EPSILON / 2.0];
    let pair = |i: usize| match i % 4 {
        0 => [f32::from_bits(next()), f32::from_bits(next())],
        1 => [next() as f32, next() as f32 + 1.0],
        2 => [special[next() as usize % special.len()], special[next() as usize % special.len()]],
        _ => {
            let (divisor, half_way) = (f64::from(next() >> 8 | 1), f64::from(next() >> 8 | 1) + 0.5);
            [(divisor * half_way) as f32, divisor as f32]
        }
    };
    let hard: Vec<f32> = roots_near_half_way();
    assert!(hard.len() > 20, "{}", hard.len());
    let of_roots = hard.iter().map(|x| [*x, next_of(*x)]);
    let pairs: Vec<_> = of_roots.chain((0..n).map(pair)).take(n).collect();
    [0, 1].map(|k| pairs.iter().map(|pair| pair[k]).collect())
}

#[test]
fn quotients_and_roots_are_those_of_a_cpu_also_where_a_device_is_off() {
    let device: Device<Wgpu> = Device::wgpu().expect("a device");
    let (backend, n) = (device.backend(), 400_000);
    let [x, y] = pairs(n);
    let bytes = |of: &[f32]| of.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let mut buffers = [bytes(&x), bytes(&y), vec![0; 4 * n], vec![0; 4 * n]].map(|bytes| {
        let mut buffer = backend.buffer(bytes.len()).unwrap();
        backend.write(&mut buffer, &bytes).unwrap();
        buffer
    });
    // Devices may treat subnormals differently.
    let normal = |x: f32| !x.is_subnormal();
    let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    for bits in [0.0, 1.0, -1.0, 2.5, -2.5, 4.0, -4.0] {
        let kernel = backend.compile(&kernel(&with_ulp_error(bits)), 5).unwrap();
        let numbers = Numbers { single: vec![n as u32, 0], wide: Vec::new() };
        let launch = Launch { numbers, buffers: buffers.iter().collect(), groups: n.div_ceil(256) };
        backend.launch(&kernel, &[launch]).unwrap();
        let floats =
            |bytes: Vec<u8>| -> Vec<f32> { bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect() };
        let [quotients, roots] = [2, 3].map(|k| floats(backend.read(&buffers[k], 4 * n).unwrap()));
        let mut compared = [0, 0];
        for (i, (x, y)) in x.iter().zip(&y).enumerate().filter(|(_, (x, y))| normal(**x) && normal(**y)) {
            if normal(x / y) {
                compared[0] += 1;
                assert!(same(quotients[i], x / y), "{bits}: {x:e} / {y:e} = {:e}, not {:e}", x / y, quotients[i]);
            }
            compared[1] += 1;
            assert!(same(roots[i], x.sqrt()), "{bits}: root of {x:e} is {:e}, not {:e}", x.sqrt(), roots[i]);
        }
        assert!(compared.iter().all(|compared| *compared > n / 2), "{compared:?}");
        let none = vec![0; 4 * n];
        for buffer in &mut buffers[2..] {
            backend.write(buffer, &none).unwrap();
        }
    }
}
