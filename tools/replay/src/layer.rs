//! `binpool-layer`, which `binpool run` loads into other programs: on Linux a shared object (`build.rs`), with what the crate
//! `binpool_layer` exports.

#![cfg_attr(target_os = "linux", no_main)]

#[cfg(target_os = "linux")]
use binpool_layer as _;

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("binpool: the layer for other programs works on Linux only");
}
