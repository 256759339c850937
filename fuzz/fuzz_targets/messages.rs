//! See `leasehold_testkit::fuzz::messages`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold_testkit::fuzz::messages(data));
