//! One step of each of the chains whose machine code `tests/vectorized.rs` reads.

use gradchain::prelude::*;

fn step<T: GradientTransformation<Needs = Nothing>>(name: &str, optimizer: &T) -> gradchain::Result<()> {
    let mut params = (vec![1.0_f32; 100], vec![1.0_f64; 100]);
    let grads = (vec![0.5_f32; 100], vec![0.5_f64; 100]);
    let mut state = optimizer.init(&params)?;
    optimizer.step(&mut params, &grads, &mut state)?;
    println!("{name}: {} and {}", params.0[0], params.1[0]);
    Ok(())
}

fn main() -> gradchain::Result<()> {
    step("scale_by_factored_rms", &scale_by_factored_rms())?;
    step("sgd with momentum", &sgd(0.1).momentum(0.9))?;
    step("adam", &adam(0.1))?;
    step("adamw", &adamw(0.1).mask(Mask::path("0")))?;
    step("lion", &lion(0.1))?;
    step("adabelief", &adabelief(0.1))?;
    step("adadelta", &adadelta(0.1))?;
    step("adagrad", &adagrad(0.1))?;
    step("adamax", &adamax(0.1))?;
    step("adan", &adan(0.1))?;
    step("amsgrad", &amsgrad(0.1))?;
    step("madgrad", &madgrad(0.1))?;
    step("adamw in 8 bits", &quantized(adamw(0.1)))?;
    step("adamw in logarithms of 8 bits", &quantized(adamw(0.1)).logarithmic(true))?;
    step("radam", &radam(0.1))?;
    step("rmsprop", &rmsprop(0.1))?;
    step("rprop", &rprop(0.1))?;
    step("sign", &sign_sgd(0.1))?;
    step("yogi", &yogi(0.1))?;
    step("clipped adamw", &chain((zero_nans(), clip_by_global_norm(1.0), adamw(0.1))))
}
