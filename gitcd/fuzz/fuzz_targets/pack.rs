#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gitcd_fuzz::pack::run(data));
