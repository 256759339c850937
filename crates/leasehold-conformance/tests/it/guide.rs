//! The guide for authors of stores shows pieces of the example as they are.

const GUIDE: &str = include_str!("../../../../docs/your-own-store.md");
const EXAMPLE: &str = include_str!("../../../leasehold/examples/own_store.rs");

#[test]
fn every_piece_of_the_example_in_the_guide_is_in_the_example() {
    let pieces: Vec<_> = GUIDE
        .split("```rs\n")
        .skip(1)
        .map(|piece| piece.split("```").next().unwrap_or_default())
        .collect();
    assert!(pieces.len() >= 5, "the guide shows the example");
    for piece in pieces {
        assert!(EXAMPLE.contains(piece), "not in own_store.rs:\n{piece}");
    }
}
