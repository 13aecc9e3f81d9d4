"""The rules of `edit.py`, on a source of our own: `python3 checks/clients/test_edit.py`."""

import unittest

import edit

TEXT = '''\
//! A file.

use std::{fmt, mem};
use std::ptr;

/// One { brace, in a comment.
#[derive(Debug)]
#[allow(
    dead_code
)]
pub struct Buffer<T> {
    length: usize,
    _phantom: std::marker::PhantomData<T>,
}

impl<T> Buffer<T> {
    /// Makes one.
    pub const fn new(length: usize) -> Self {
        let text = "} { // no comment";
        let quote = '{';
        let r = r#"a "quoted" }"#;
        Self { length, _phantom: std::marker::PhantomData }
    }

    fn length<'a>(&'a self) -> usize {
        self.length
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {}
}

const LIMITS: [Limit; 2] = [Limit { bytes: 1 }, Limit { bytes: 2 }];

mod inner {
    fn new() {}
}
'''


class Edits(unittest.TestCase):
    def setUp(self):
        self.source = edit.Source("lib.rs", TEXT)

    def changed(self):
        """The lines that are not as they were."""
        old, new = TEXT.splitlines(), self.source.text.splitlines()
        return [line for line in old if line not in new], [line for line in new if line not in old]

    def refused(self, message, change, *arguments, **keys):
        with self.assertRaisesRegex(edit.EditError, message):
            change(*arguments, **keys)
        self.assertEqual(self.source.text, TEXT)

    def test_a_name_that_is_not_there_once_is_refused(self):
        self.refused("`shorten` is there 0 times", self.source.delete_item, "shorten")
        self.refused("`new` is there 2 times", self.source.replace_body, "new", "")
        self.refused("`usize in struct Buffer` is there 1 times, and 2", self.source.rename, "struct Buffer", "usize", "u64", times=2)
        self.refused("`let bytes in Buffer::new`", self.source.replace_let, "Buffer::new", "bytes", "")
        self.refused("has no braces", self.source.replace_body, "use std::ptr", "")

    def test_a_body_is_replaced_whatever_its_strings_and_comments_have(self):
        self.source.replace_body("Buffer::new", "todo!()")
        self.assertEqual(self.changed()[1], ["        todo!()"])
        self.assertIn("    pub const fn new(length: usize) -> Self {\n        todo!()\n    }\n\n    fn length", self.source.text)

    def test_an_item_goes_with_its_comments_and_attributes(self):
        self.source.delete_item("struct Buffer")
        self.assertTrue(self.source.text.startswith("//! A file.\n\nuse std::{fmt, mem};\nuse std::ptr;\n\nimpl<T> Buffer<T> {"))
        self.source.delete_item("LIMITS")
        self.assertIn("    fn drop(&mut self) {}\n}\n\nmod inner", self.source.text)

    def test_items_without_a_name_are_named_by_how_they_begin(self):
        self.source.delete_item("use std::ptr")
        self.source.delete_item("impl<T> Drop")
        self.assertEqual(self.changed()[0], ["use std::ptr;", "impl<T> Drop for Buffer<T> {", "    fn drop(&mut self) {}"])

    def test_text_is_inserted_at_the_depth_of_what_is_beside_it(self):
        self.source.insert_before("Buffer::length", "fn one() {\n    two();\n}")
        self.source.insert_inside("struct Buffer", "pool: Pool,")
        self.source.insert_inside("Buffer::new", "pool: Pool::new(),", literal="Self")
        self.assertIn("    }\n\n    fn one() {\n        two();\n    }\n\n    fn length", self.source.text)
        self.assertIn("pub struct Buffer<T> {\n    pool: Pool,\n    length", self.source.text)
        self.assertIn("Self {\n            pool: Pool::new(), length", self.source.text)

    def test_a_statement_is_found_by_what_it_binds(self):
        self.source.replace_let("Buffer::new", "r", "let r = 1;")
        self.source.insert_before_let("Buffer::new", "quote", "let more = 2;")
        self.assertEqual(self.changed()[1], ["        let more = 2;", "        let r = 1;"])


if __name__ == "__main__":
    unittest.main()
