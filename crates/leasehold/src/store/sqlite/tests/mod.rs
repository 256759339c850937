//! What the conformance suite cannot know.
