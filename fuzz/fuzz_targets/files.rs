//! See `leasehold_testkit::fuzz::files`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold_testkit::fuzz::files(data));
