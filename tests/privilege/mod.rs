//! Whether a test that needs network namespaces can run here.

use std::io::Write;

use weft::lab::net::Namespace;

/// Prints why and returns `false` when namespaces can't be made here; fails under CI=true.
pub fn privileged(test: &str) -> bool {
    let probe = format!("weft-test-probe-{}-{test}", std::process::id());
    match Namespace::create(&probe) {
        Ok(_) => {
            Namespace::delete(&probe).expect("the probe namespace goes again");
            true
        }
        Err(e) if e.is_permission() => {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "CI must not skip {test}: {e}");
            // Not eprintln!, which the test harness swallows for a test that passes; in one write, as other
            // tests print too.
            let line = format!("SKIPPED {} {test}: {e}\n", env!("CARGO_CRATE_NAME"));
            let _ = std::io::stderr().write_all(line.as_bytes());
            false
        }
        Err(e) => panic!("{e}"),
    }
}
