#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gradchain_fuzz::data(bytes));
