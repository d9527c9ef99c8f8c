use std::fmt::Display;

/// What somebody was told last, so that he is told only what is new to him, and again what did not
/// reach him.
#[derive(Debug)]
pub(super) struct Told<T> {
    last: Option<T>,
    failure: Option<String>,
}

impl<T> Default for Told<T> {
    fn default() -> Told<T> {
        Told { last: None, failure: None }
    }
}

impl<T: PartialEq> Told<T> {
    /// Tells `now`, unless that was the last that was told. Returns what came of it: a failure only if it
    /// is another than the one before.
    pub fn bring<E: Display>(&mut self, now: T, tell: impl FnOnce(&T) -> Result<(), E>) -> Option<Result<&T, String>> {
        if self.last.as_ref() == Some(&now) {
            return None;
        }
        match tell(&now) {
            Ok(()) => {
                self.failure = None;
                Some(Ok(self.last.insert(now)))
            }
            Err(e) => {
                // It may have been told by half.
                self.last = None;
                let failure = Some(e.to_string());
                let is_new = self.failure != failure;
                self.failure.clone_from(&failure);
                failure.filter(|_| is_new).map(Err)
            }
        }
    }

    /// Whether the last did not reach him.
    pub fn has_failed(&self) -> bool {
        self.failure.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_arrive_is_told_again_and_a_failure_that_stays_is_returned_once() {
        let mut told = Told::default();
        let fails = |e: &'static str| move |_: &u32| Err(e);
        assert_eq!(told.bring(1, |_| Ok::<_, &str>(())), Some(Ok(&1)));
        assert_eq!(told.bring(1, fails("not asked")), None);
        assert_eq!(told.bring(2, fails("full")), Some(Err("full".into())));
        assert!(told.has_failed());
        assert_eq!(told.bring(2, fails("full")), None);
        assert_eq!(told.bring(2, fails("gone")), Some(Err("gone".into())));
        // What was before may be gone by half.
        assert_eq!(told.bring(1, |_| Ok::<_, &str>(())), Some(Ok(&1)));
        assert!(!told.has_failed());
    }
}
