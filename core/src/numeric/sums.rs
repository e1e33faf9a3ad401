#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::simd::SimdLevel;
use super::simd::{Job, SimdType, current_simd_level, dispatch};
use crate::element::Real;

/// Partial sums side by side, for vectorization. The number fixes the order of addition, and so results to the bit.
pub(crate) const LANES: usize = 16;

/// Adds to partial sums by register. By hand, because LLVM mixes lanes of several sums, or adds half registers.
macro_rules! add_by_registers {
    (
        $(#[$doc:meta])* $name:ident($T:ty), $in_order:expr,
        $($Level:ident: $width:literal $load:ident $add:ident $store:ident),*
    ) => {
        $(#[$doc])*
        #[inline(always)]
        #[allow(unsafe_code, clippy::cast_ptr_alignment, reason = "the set's own instructions, none of which asks for more")]
        pub(crate) fn $name<I: SimdType>(to: &mut [$T; LANES], terms: &[$T; LANES]) {
            match I::SIMD {
                $(#[cfg(all(target_arch = "x86_64", not(miri)))]
                SimdLevel::$Level => {
                    use core::arch::x86_64::{$load, $add, $store};
                    let mut i = 0;
                    while i < LANES {
                        // SAFETY: whole registers of the lanes; `dispatch` has chosen the SIMD level.
                        unsafe {
                            let to = to.as_mut_ptr().add(i);
                            $store(to.cast(), $add($load(to.cast()), $load(terms.as_ptr().add(i).cast())));
                        }
                        i += $width;
                    }
                })*
                #[cfg(not(all(target_arch = "x86_64", not(miri))))]
                _ => {
                    for i in 0..LANES {
                        to[i] = $in_order(to[i], terms[i]);
                    }
                }
            }
        }
    };
}

add_by_registers! {
    add_lanes(f64), |a: f64, b: f64| a + b,
    Avx512: 8 _mm512_loadu_pd _mm512_add_pd _mm512_storeu_pd,
    Avx2: 4 _mm256_loadu_pd _mm256_add_pd _mm256_storeu_pd,
    Baseline: 2 _mm_loadu_pd _mm_add_pd _mm_storeu_pd
}
add_by_registers! {
    add_counts(u32), u32::wrapping_add,
    Avx512: 16 _mm512_loadu_si512 _mm512_add_epi32 _mm512_storeu_si512,
    Avx2: 8 _mm256_loadu_si256 _mm256_add_epi32 _mm256_storeu_si256,
    Baseline: 4 _mm_loadu_si128 _mm_add_epi32 _mm_storeu_si128
}

/// Returns the sum of `f` over a tile, in an order independent of the SIMD level.
#[inline(always)]
pub fn sum_tile<C: Real>(x: &[C], f: impl Fn(C) -> f64) -> f64 {
    let mut lanes = [0.0_f64; LANES];
    let mut chunks = x.chunks_exact(LANES);
    for chunk in &mut chunks {
        for i in 0..LANES {
            lanes[i] += f(chunk[i]);
        }
    }
    for (i, x) in chunks.remainder().iter().enumerate() {
        lanes[i] += f(*x);
    }
    lanes.iter().sum()
}

/// Returns the sum of squares.
pub fn squares<C: Real>(x: &[C]) -> f64 {
    dispatch(current_simd_level(), Squares(x))
}

struct Squares<'a, C>(&'a [C]);

impl<C: Real> Job for Squares<'_, C> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        sum_tile(self.0, |x| x.as_f64() * x.as_f64())
    }
}

/// As [`sum_tile`], over two slices of one length.
#[inline(always)]
pub fn sum_pairs<C: Real>(x: &[C], y: &[C], f: impl Fn(C, C) -> f64) -> f64 {
    sum_triples(x, y, y, |x, y, _| f(x, y))
}

/// As [`sum_tile`], over three slices of one length.
#[inline(always)]
pub(crate) fn sum_triples<C: Real>(x: &[C], y: &[C], z: &[C], f: impl Fn(C, C, C) -> f64) -> f64 {
    let mut lanes = [0.0_f64; LANES];
    let (x, rest_x) = x.as_chunks::<LANES>();
    let (y, rest_y) = y.as_chunks::<LANES>();
    let (z, rest_z) = z.as_chunks::<LANES>();
    let (y, z) = (&y[..x.len()], &z[..x.len()]);
    for block in 0..x.len() {
        for i in 0..LANES {
            lanes[i] += f(x[block][i], y[block][i], z[block][i]);
        }
    }
    for i in 0..rest_x.len() {
        lanes[i] += f(rest_x[i], rest_y[i], rest_z[i]);
    }
    lanes.iter().sum()
}
