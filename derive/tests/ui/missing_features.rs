//! Names that are behind a feature.

use gradchain::checkpoint::Save;
use gradchain::config::Config;
use gradchain::optimizer::soap;
use gradchain::transform::scale_by_shampoo;

fn main() {
    let _ = gradchain::optimizer::galore(0.1);
    let _ = vec![gradchain::half::f16::ONE];
}
