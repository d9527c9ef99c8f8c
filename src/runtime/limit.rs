//! How many files this process may have open (RLIMIT_NOFILE, getrlimit(2)).

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// What a process has open beside what it counts: standard streams, clients, libraries, room.
const SPARE: u64 = 64;

/// Makes room for `files` open files and a few more: raises the soft limit to the hard one.
///
/// The soft limit is 1024 on most systems for the sake of select(2), which weft doesn't use; the hard
/// limit is the one that is meant.
///
/// # Errors
/// `what`, its need, the limit and the remedy, as one sentence, if the hard limit is too low.
pub fn allow_open_files(what: &str, files: usize) -> Result<(), String> {
    let words = |cause: io::Error| format!("the limit of open files: {cause}; raise it with `ulimit -n`");
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(|e| words(e.into()))?;
    let needed = files as u64 + SPARE;
    if hard < needed {
        return Err(format!(
            "{what} needs {needed} open files and may have {hard}: `ulimit -n {needed}` first, as root"
        ));
    }
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_err(|e| words(e.into()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_goes_up_to_the_hard_one() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        // Only ever up again: other tests run in this process.
        setrlimit(Resource::RLIMIT_NOFILE, hard.min(512), hard).unwrap();
        allow_open_files("a test", 1).unwrap();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (hard, hard));
    }

    #[test]
    fn more_than_the_hard_limit_is_refused_with_the_number_to_set() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        if hard > u64::MAX / 2 {
            return; // unlimited
        }
        let error = allow_open_files("the fabric", hard as usize).unwrap_err();
        let needed = hard + SPARE;
        assert!(
            error.contains(&format!("may have {hard}")) && error.contains(&format!("`ulimit -n {needed}`")),
            "{error}"
        );
        assert!(error.starts_with("the fabric needs"), "{error}");
    }
}
