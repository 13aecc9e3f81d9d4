//! Gives the shared library the name that programs find it by, once it is installed.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let of = |name| env::var(name).unwrap_or_default();
    // Before version 1, a minor version may break programs: they ask for the one that they were built with.
    let version = match of("CARGO_PKG_VERSION_MAJOR").as_str() {
        "0" => format!("0.{}", of("CARGO_PKG_VERSION_MINOR")),
        major => major.to_owned(),
    };
    match of("CARGO_CFG_TARGET_OS").as_str() {
        "macos" => println!(
            "cargo::rustc-cdylib-link-arg=-Wl,-install_name,@rpath/libbinpool.{version}.dylib"
        ),
        "windows" => {}
        _ => println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libbinpool.so.{version}"),
    }
}
