//! See `leasehold_testkit::fuzz::urls`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold_testkit::fuzz::urls(data));
