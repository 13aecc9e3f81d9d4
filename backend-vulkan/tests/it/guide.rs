//! The guide shows code of this crate that rustdoc does not compile there: it is that of README.md, which it compiles here.

#[test]
fn the_code_of_the_guide_is_that_of_the_readme() {
    let (guide, readme) = (
        include_str!("../../../pool/guide/allocators.md"),
        include_str!("../../README.md"),
    );
    let blocks: Vec<_> = guide.split("```rust,ignore\n").skip(1).collect();
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        let (code, _) = block.split_once("```").unwrap();
        assert!(readme.contains(code), "{code}");
    }
}
