//! Compiles bpf/weft.bpf.c with libbpf-cargo; `port::xdp` embeds the object.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

const SOURCE: &str = "bpf/weft.bpf.c";

fn main() {
    let object = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("weft.bpf.o");
    // asm/types.h lives in the multiarch directory, which clang -target bpf does not search.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    SkeletonBuilder::new()
        .source(SOURCE)
        .obj(&object)
        .clang_args(["-O2".to_string(), format!("-I/usr/include/{arch}-linux-gnu")])
        .build()
        .unwrap_or_else(|error| {
            panic!("{SOURCE}: {error:#}\nclang with the bpf target is needed: apt-get install clang libelf-dev")
        });
    println!("cargo:rerun-if-changed={SOURCE}");
}
