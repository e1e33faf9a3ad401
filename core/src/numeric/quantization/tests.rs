use super::*;
use crate::numeric::simd::detected_simd_level;

const ALL: [DType; 4] = [DType::Root8, DType::FourthRoot8, DType::Log8, DType::UnsignedLog8];

fn is_signed(dtype: DType) -> bool {
    matches!(dtype, DType::Root8 | DType::Log8)
}

fn quantized(dtype: DType, numbers: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; dtype.bytes(numbers.len())];
    encode(detected_simd_level(), dtype, numbers, &mut bytes);
    bytes
}

fn decoded(dtype: DType, bytes: &[u8], len: usize) -> Vec<f32> {
    let mut numbers = vec![0.0; len];
    decode(detected_simd_level(), dtype, bytes, &mut numbers);
    numbers
}

/// Returns numbers, signed if the dtype is, whose magnitudes span `octaves`.
fn numbers(dtype: DType, seed: u32, len: usize, octaves: f32, most: f32) -> Vec<f32> {
    let one = |i: usize| {
        let random = (i as u32 ^ seed.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
        let random = (random ^ random >> 13).wrapping_mul(0xc2b2_ae35);
        let size = most * (-octaves * (random >> 8) as f32 / 16_777_216.0).exp2();
        if is_signed(dtype) && random & 1 == 1 { -size } else { size }
    };
    (0..len).map(one).collect()
}

/// Returns the error bound that `quantized` documents.
fn bound(dtype: DType, x: f64, scale: f64) -> f64 {
    let part = x.abs() / scale;
    match dtype {
        DType::Root8 => scale * (2.0 * part.sqrt() + 2.0 / 127.0) / 127.0,
        DType::FourthRoot8 if part >= 1e-4 => 5.0 / (255.0 * part.powf(0.25)) * x,
        DType::FourthRoot8 => 2e-4 * scale,
        DType::Log8 if part < 2.0_f64.powf(-15.0) => 2.0_f64.powf(-15.0) * scale,
        DType::UnsignedLog8 if part < 2.0_f64.powf(-31.0) => 2.0_f64.powf(-31.0) * scale,
        _ => x.abs() / 8.0,
    }
}

#[test]
fn numbers_go_to_a_code_next_to_them_and_stay_there() {
    for dtype in ALL {
        for (seed, octaves, most) in
            [(1, 1.0, 1.0), (2, 8.0, 1e-6), (3, 30.0, 3e7), (4, 60.0, f32::MAX), (5, 3.0, 1e-30)]
        {
            for len in [1, 255, 256, 257, 1024, 1100] {
                let from = numbers(dtype, seed, len, octaves, most);
                let bytes = quantized(dtype, &from);
                let to = decoded(dtype, &bytes, len);
                for (from, to) in from.chunks(BLOCK).zip(to.chunks(BLOCK)) {
                    let scale = from.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
                    for (x, y) in from.iter().zip(to) {
                        let error = (f64::from(*x) - f64::from(*y)).abs();
                        let bound = bound(dtype, (*x).into(), scale.into()) * 1.000_01;
                        assert!(error <= bound, "{dtype} {octaves} {most:e}: {x:e} became {y:e} of {scale:e}");
                        assert!(*x * *y >= 0.0, "{dtype}: {x:e} became {y:e}");
                        assert!(is_signed(dtype) || *x == 0.0 || *y > 0.0, "{dtype}: {x:e} became {y:e}");
                        // The scale has a lower bound, so that the largest of tiny numbers may have no exact logarithm.
                        let exact = x.abs() != scale || scale < 1e-28 || *x == *y;
                        assert!(exact, "{dtype}: the largest, {x:e}, became {y:e}");
                    }
                }
                assert_eq!(quantized(dtype, &to), bytes, "{dtype}: what codes say exactly stays");
                for simd in [SimdLevel::Baseline, SimdLevel::Avx2.min(detected_simd_level())] {
                    let (mut same, mut back) = (vec![0; bytes.len()], vec![0.0; len]);
                    encode(simd, dtype, &from, &mut same);
                    decode(simd, dtype, &same, &mut back);
                    assert!(same == bytes && back == to, "{dtype}: {simd:?}");
                }
            }
        }
    }
}

#[test]
fn rounding_has_no_bias() {
    for dtype in ALL {
        // Numbers between the same codes, beside one that is the scale.
        let part = if is_signed(dtype) { 0.3 } else { 0.01 };
        let (mut sum, mut exact, n) = (0.0, 0.0, 400_000);
        for seed in 0..n / 250 {
            let mut from = numbers(dtype, seed, BLOCK, 0.02, part);
            from[0] = 1.0;
            let to = decoded(dtype, &quantized(dtype, &from), BLOCK);
            let root = |x: &f32| {
                f64::from(x.abs()).powf(match dtype {
                    DType::Root8 => 0.5,
                    DType::FourthRoot8 => 0.25,
                    _ => 1.0,
                })
            };
            exact += from[1..].iter().map(root).sum::<f64>();
            sum += to[1..].iter().map(root).sum::<f64>();
        }
        assert!((sum / exact - 1.0).abs() < 2e-4, "{dtype}: {}", sum / exact - 1.0);
    }
}

#[test]
fn blocks_of_zero_tiny_and_nonfinite_numbers_are_quantized() {
    for dtype in ALL {
        assert_eq!(decoded(dtype, &vec![0; dtype.bytes(300)], 300), [0.0; 300], "as memory is before the first step");
        assert_eq!(quantized(dtype, &[0.0; 3]), [0; 7]);
        let tiny = [f32::from_bits(1), 1e-42, 0.0, 1e-38];
        let found = decoded(dtype, &quantized(dtype, &tiny), 4);
        assert!(found[2] == 0.0 && found.iter().all(|x| x.abs() < 1e-28), "{found:?}");
        assert!(is_signed(dtype) || found[0] > 0.0 && found[1] > 0.0, "{dtype}: {found:?}");
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut from = numbers(dtype, 1, 600, 2.0, 1.0);
            from[300] = bad;
            let bytes = quantized(dtype, &from);
            let found = decoded(dtype, &bytes, 600);
            let as_it_is = bad.is_nan() || bad < 0.0 && !is_signed(dtype);
            assert!(if as_it_is { found[300].is_nan() } else { found[300] == bad }, "{dtype}: {bad}");
            from[300] = 0.0;
            let scale =
                |i: usize| from[i / BLOCK * BLOCK..].iter().take(BLOCK).fold(0.0, |most: f32, x| x.abs().max(most));
            for (i, (x, y)) in from.iter().zip(&found).enumerate().filter(|(i, _)| *i != 300) {
                // Infinities and NaN take the codes of the smallest magnitudes.
                let taken = if dtype == DType::Root8 { 5e-4 } else { 1e-4 };
                let bound = bound(dtype, (*x).into(), scale(i).into()) + taken * f64::from(scale(i));
                assert!((f64::from(*x) - f64::from(*y)).abs() <= bound, "{dtype}: {x} became {y} beside {bad}");
                assert!(is_signed(dtype) || *x == 0.0 || *y > 0.0, "{dtype}: {x:e} became {y:e}");
            }
            assert_eq!(quantized(dtype, &found), bytes, "{dtype}: what codes say exactly stays");
        }
        let all = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, 1.0, 1e-30, f32::MAX];
        for others in [&all[..], &all[..3], &all[..4], &[f32::INFINITY]] {
            let bytes = quantized(dtype, others);
            let found = decoded(dtype, &bytes, others.len());
            for (x, y) in others.iter().zip(&found) {
                assert!(x.is_finite() == y.is_finite() && (*x != 0.0 || *y == 0.0), "{dtype}: {others:?}, {found:?}");
            }
            assert_eq!(quantized(dtype, &found), bytes);
        }
        // The former format: NaN throughout.
        let before: Vec<u8> = f32::NAN.to_le_bytes().into_iter().chain([0; 256]).collect();
        assert!(decoded(dtype, &before, 256).iter().all(|x| x.is_nan()));
        // Every bit pattern is a number.
        for bytes in [[0xff; 260], [0x80; 260], [0x7f; 260]] {
            let _ = decoded(dtype, &bytes, 256);
        }
    }
}
