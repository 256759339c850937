//! See `leasehold_testkit::fuzz::replies`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold_testkit::fuzz::replies(data));
