//! The crate's example for Vulkan, as a test.

include!("../examples/vulkan-buffer.rs");

#[test]
fn the_example_runs() {
    main();
}
