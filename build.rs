//! Compiles bpf/*.bpf.c with libbpf-cargo; `port::xdp` and `lab::congestion` embed the objects.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

/// The switch's program, the yardstick and the generator of `weft bench` and `weft gen`, and TCP without congestion control.
const PROGRAMS: [&str; 4] = ["weft", "redirect", "live", "uncontrolled"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // asm/types.h lives in the multiarch directory, which clang -target bpf does not search.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    for program in PROGRAMS {
        let source = format!("bpf/{program}.bpf.c");
        SkeletonBuilder::new()
            .source(&source)
            .obj(out.join(format!("{program}.bpf.o")))
            .clang_args(["-O2".to_string(), format!("-I/usr/include/{arch}-linux-gnu")])
            .build()
            .unwrap_or_else(|error| {
                panic!("{source}: {error:#}\nclang with the bpf target is needed: apt-get install clang libelf-dev")
            });
        println!("cargo:rerun-if-changed={source}");
    }
}
