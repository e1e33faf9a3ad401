use crate::{Clock, Real, Rule};
/// scale
#[derive(Clone, Debug)]
pub struct Scale { /// x
 pub step_size: f64 }
impl Rule for Scale {
    const NAME: &'static str = "scale";
    type Slots<C: Real> = [C; 0];
    type Scalars<C: Real> = C;
    fn scalars<C: Real>(&self, _: Clock) -> C { C::of(self.step_size) }
    #[inline(always)]
    fn apply<C: Real>(k: C, _: &mut [C; 0], u: C, _: C) -> C { k * u }
}
/// x
#[derive(Clone, Debug)]
pub struct Decay { /// x
 pub step_size: f64 }
impl Rule for Decay {
    const NAME: &'static str = "scale";
    const READS_PARAMS: bool = true;
    type Slots<C: Real> = [C; 0];
    type Scalars<C: Real> = C;
    fn scalars<C: Real>(&self, _: Clock) -> C { C::of(self.step_size) }
    #[inline(always)]
    fn apply<C: Real>(k: C, _: &mut [C; 0], u: C, p: C) -> C { u+ k * p }
}
/// x
#[derive(Clone, Debug)]
pub struct Adam { /// x
 pub b1: f64, /// x
 pub b2: f64, /// x
 pub eps: f64 }
/// x
#[derive(Clone, Copy)]
pub struct AdamS<C> { b1: C, a1: C, b2: C, a2: C, c1: C, c2: C, eps: C }
impl Rule for Adam {
    const NAME: &'static str = "scale";
    const SLOTS: &'static [&'static str] = &["mu","nu"];
    type Slots<C: Real> = [C; 2];
    type Scalars<C: Real> = AdamS<C>;
    fn scalars<C: Real>(&self, t: Clock) -> AdamS<C> { AdamS { b1: C::of(self.b1), a1: C::of(1.0-self.b1), b2: C::of(self.b2), a2: C::of(1.0-self.b2), c1: C::of(1.0/t.bias_correction(self.b1)), c2: C::of(1.0/t.bias_correction(self.b2)), eps: C::of(self.eps)} }
    #[inline(always)]
    fn apply<C: Real>(k: AdamS<C>, [m,v]: &mut [C; 2], u: C, _: C) -> C {
        *m = k.b1 * *m + k.a1 * u;
        *v = k.b2 * *v + k.a2 * (u * u);
        *m * k.c1 / ((*v * k.c2).sqrt() + k.eps)
    }
}
