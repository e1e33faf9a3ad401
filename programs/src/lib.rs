//! Programs that need more of gradchain than its default features: see `examples` beside this folder. There is nothing
//! here.
