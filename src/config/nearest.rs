//! What somebody may have meant by a name that is not there.

/// Up to `limit` of `names`, those most like `wanted` first.
pub(crate) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>, limit: usize) -> Vec<String> {
    let mut ranked: Vec<_> = names.map(|name| (edit_distance(wanted, name), name)).collect();
    ranked.sort();
    ranked.into_iter().take(limit).map(|(_, name)| name.to_owned()).collect()
}

/// The one of `names` that `wanted` is a slip of: at most one letter in three differs.
pub(super) fn meant<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, name) = names.map(|name| (edit_distance(wanted, name), name)).min()?;
    (distance <= (wanted.len() / 3).max(1)).then_some(name)
}

/// Bytes that are wrong, missing or too many, or change places with their neighbour (optimal string alignment).
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let (above, left, diagonal) = (rows[i - 1][j], row[j - 1], rows[i - 1][j - 1]);
            let mut least = (above.min(left) + 1).min(diagonal + usize::from(a[i - 1] != b[j - 1]));
            if i > 1 && j > 1 && (a[i - 1], a[i - 2]) == (b[j - 2], b[j - 1]) {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_comes_first_and_only_a_slip_is_taken_for_a_name() {
        let names = ["tor0-0", "tor0-1", "h0-0-2", "core1"];
        assert_eq!(nearest("h0-0-1", names.into_iter(), 2)[0], "h0-0-2");
        assert_eq!(nearest("cor1", names.into_iter(), 1), ["core1"]);
        assert_eq!(nearest("tor0", names.into_iter(), 2), ["tor0-0", "tor0-1"]);
        assert_eq!(meant("cor1", names.into_iter()), Some("core1"));
        assert_eq!(meant("rack", names.into_iter()), None);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("nmae", "name"), 1, "two letters in the wrong order are one slip");
    }
}
