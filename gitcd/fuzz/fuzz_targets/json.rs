#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gitcd_fuzz::json::run(data));
