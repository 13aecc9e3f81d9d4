//! Links `binpool-layer` as what other programs load: a shared object, not a program.

use std::{env, path::Path};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=layer.map");
    if env::var_os("CARGO_CFG_TARGET_OS").is_none_or(|system| system != "linux") {
        return;
    }
    let folder = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let exported = Path::new(&folder).join("layer.map");
    let arguments = [
        // The last of `-pie`, which rustc asks for, and these two counts; Zig's linker does not take the first with the last.
        "-no-pie".to_owned(),
        "-shared".to_owned(),
        // Functions of the layer stay in the tables of a program that unloads its driver.
        "-Wl,-z,nodelete".to_owned(),
        format!("-Wl,--version-script={}", exported.display()),
    ];
    for argument in arguments {
        println!("cargo::rustc-link-arg-bin=binpool-layer={argument}");
    }
}
