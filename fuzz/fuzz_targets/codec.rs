//! See `store/redis/codec/fuzz.rs` in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold::store::redis::fuzz_codec(data));
