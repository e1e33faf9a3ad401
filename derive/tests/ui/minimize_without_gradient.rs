use gradchain::prelude::*;

fn main() {
    let optimizer = lbfgs();
    let mut params = 2.0_f64;
    let mut state = optimizer.init(&params).unwrap();
    let _ = optimizer.minimize_step(&mut params, |p| p * p, &mut state);
    let _ = optimizer.minimize(&mut params, |p| p * p, &mut state);
}
