//! Devices that the backend opens itself, by a driver that tests have made up: the tests of the interface have devices of the program's own only.

#![expect(unsafe_code, reason = "a driver, in part")]

#[allow(dead_code, reason = "it uses a part of it")]
#[path = "../tests/it/common/mod.rs"]
mod common;
#[path = "../tests/opened/driver.rs"]
mod driver;
#[path = "../tests/opened/open.rs"]
mod open;
#[path = "../tests/opened/pages.rs"]
mod pages;

#[test]
fn no_call_is_against_the_specification() {
    common::again_one_by_one("no_call_is_against_the_specification", &[]);
}
