//! The tables against oracles that are too simple to be wrong.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;

use proptest::collection::vec;
use proptest::prelude::*;
use weft::id::{PortId, PortMask};
use weft::pisa::FlowHash;
use weft::pisa::table::exact::{ExactKey, ExactTable, Full};
use weft::pisa::table::{Group, GroupTable, Lpm, LpmKey, Registers, TernaryTable};

#[derive(Clone, Debug)]
enum ExactOp<K> {
    Insert(K, u32),
    Remove(K),
    Change(K, u32),
    /// Keeps values whose low bits are not these.
    Retain(u32),
}

fn exact_ops<K: Debug + Clone + 'static>(keys: BoxedStrategy<K>) -> impl Strategy<Value = Vec<ExactOp<K>>> {
    let op = prop_oneof![
        8 => (keys.clone(), any::<u32>()).prop_map(|(k, v)| ExactOp::Insert(k, v)),
        5 => keys.clone().prop_map(ExactOp::Remove),
        2 => (keys, any::<u32>()).prop_map(|(k, v)| ExactOp::Change(k, v)),
        1 => (0u32..4).prop_map(ExactOp::Retain),
    ];
    vec(op, 0..200)
}

/// Runs `ops` on a table of `limit` entries and on a map that refuses at the same limit.
fn exact<K: ExactKey + Ord + std::hash::Hash + Debug>(
    limit: usize,
    seed: u64,
    ops: Vec<ExactOp<K>>,
) -> Result<(), TestCaseError> {
    let mut table = ExactTable::new(limit, seed);
    let mut model = HashMap::new();
    let mut seen = vec![];
    for op in ops {
        match op {
            ExactOp::Insert(key, value) => {
                seen.push(key);
                let expected = match model.contains_key(&key) || model.len() < limit {
                    true => Ok(model.insert(key, value)),
                    false => Err(Full),
                };
                prop_assert_eq!(table.insert(key, value), expected);
            }
            ExactOp::Remove(key) => prop_assert_eq!(table.remove(&key), model.remove(&key)),
            ExactOp::Change(key, value) => {
                prop_assert_eq!(table.get_mut(&key).map(|v| std::mem::replace(v, value)), model.get(&key).copied());
                model.entry(key).and_modify(|v| *v = value);
            }
            ExactOp::Retain(low) => {
                table.retain(|_, v| v & 3 != low);
                model.retain(|_, v| *v & 3 != low);
            }
        }
        prop_assert_eq!((table.len(), table.is_empty(), table.limit()), (model.len(), model.is_empty(), limit));
        for key in &seen {
            prop_assert_eq!(table.get(key), model.get(key), "{:?}", key);
        }
        let entries: BTreeMap<K, u32> = table.iter().map(|(k, v)| (*k, *v)).collect();
        prop_assert_eq!(entries, model.iter().map(|(k, v)| (*k, *v)).collect());
    }
    Ok(())
}

#[derive(Clone, Debug)]
enum LpmOp<K> {
    Insert(K, u8, u32),
    Remove(K, u8),
    Get(K),
}

fn lpm_ops<K: Debug + Clone + 'static>(keys: BoxedStrategy<K>, bits: u8) -> impl Strategy<Value = Vec<LpmOp<K>>> {
    let len = prop_oneof![0..=bits, Just(0), Just(bits), Just(bits / 4 * 3)];
    let op = prop_oneof![
        3 => (keys.clone(), len.clone(), any::<u32>()).prop_map(|(k, l, v)| LpmOp::Insert(k, l, v)),
        1 => (keys.clone(), len).prop_map(|(k, l)| LpmOp::Remove(k, l)),
        4 => keys.prop_map(LpmOp::Get),
    ];
    vec(op, 0..200)
}

/// Runs `ops` on an LPM table and on a list of prefixes; `covers` says whether a prefix has an address.
fn lpm<K: LpmKey + Debug>(seed: u64, ops: Vec<LpmOp<K>>, covers: fn(K, u8, K) -> bool) -> Result<(), TestCaseError> {
    let mut table = Lpm::new(seed);
    let mut model: Vec<(K, u8, u32)> = vec![];
    for op in ops {
        match op {
            LpmOp::Insert(key, len, value) => {
                let old = model.iter_mut().find(|(k, l, _)| *l == len && covers(*k, len, key));
                let expected = match old {
                    Some((_, _, old)) => Some(std::mem::replace(old, value)),
                    None => {
                        model.push((key, len, value));
                        None
                    }
                };
                prop_assert_eq!(table.insert(key, len, value), expected);
            }
            LpmOp::Remove(key, len) => {
                let at = model.iter().position(|(k, l, _)| *l == len && covers(*k, len, key));
                prop_assert_eq!(table.remove(key, len), at.map(|at| model.swap_remove(at).2));
            }
            LpmOp::Get(key) => {
                let best = model.iter().filter(|(k, l, _)| covers(*k, *l, key)).max_by_key(|(_, l, _)| *l);
                prop_assert_eq!(table.get(key), best.map(|(_, _, v)| v), "{:?}", key);
            }
        }
        let listed: Vec<(u8, u32)> = table.iter().map(|(_, len, v)| (len, *v)).collect();
        prop_assert!(listed.is_sorted_by(|a, b| a.0 >= b.0), "longest first: {:?}", listed);
        let sorted = |mut list: Vec<(u8, u32)>| {
            list.sort_unstable();
            list
        };
        prop_assert_eq!(sorted(listed), sorted(model.iter().map(|(_, l, v)| (*l, *v)).collect()));
    }
    Ok(())
}

/// Addresses that share prefixes of every length.
fn addresses_v4() -> BoxedStrategy<u32> {
    (0u8..33, any::<u32>()).prop_map(|(keep, noise)| 0x0a00_0100 ^ noise.checked_shr(keep.into()).unwrap_or(0)).boxed()
}

fn addresses_v6() -> BoxedStrategy<u128> {
    let base = 0xfd00_0000_0001_0002_0000_0000_0000_0003;
    (0u8..129, any::<u128>()).prop_map(move |(keep, noise)| base ^ noise.checked_shr(keep.into()).unwrap_or(0)).boxed()
}

#[derive(Clone, Debug)]
enum TernaryOp {
    Insert(u128, u128, i32),
    Remove(u128, u128),
    Get(u128),
}

fn ternary_ops() -> impl Strategy<Value = Vec<TernaryOp>> {
    // Few bits, so that entries overlap and repeat.
    let word = || 0u128..16;
    let op = prop_oneof![
        3 => (word(), word(), -2i32..3).prop_map(|(v, m, p)| TernaryOp::Insert(v, m, p)),
        1 => (word(), word()).prop_map(|(v, m)| TernaryOp::Remove(v, m)),
        4 => word().prop_map(TernaryOp::Get),
    ];
    vec(op, 0..120)
}

fn masks() -> impl Strategy<Value = PortMask> {
    prop_oneof![any::<u64>(), (0u32..64, 0u32..64).prop_map(|(a, b)| 1 << a | 1 << b), Just(0)].prop_map(PortMask)
}

/// The ports that serve by the definition: the live ones of the first priority that has any.
fn serving(priorities: &[PortMask], live: PortMask) -> Vec<PortId> {
    let live_of = |p: &PortMask| (0..64).map(PortId).filter(|id| p.contains(*id) && live.contains(*id)).collect();
    priorities.iter().map(live_of).find(|ports: &Vec<PortId>| !ports.is_empty()).unwrap_or_default()
}

/// Pearson's statistic of `counts` against even expectation, and the value that it passes with a chance
/// below e^-25 = 1.4e-11 if they are even (Laurent and Massart, Ann. Statist. 28(5), 2000, lemma 1).
fn chi_square(counts: &[u64]) -> (f64, f64) {
    let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    let statistic = counts.iter().map(|c| (*c as f64 - expected).powi(2) / expected).sum();
    let freedom = (counts.len() - 1) as f64;
    (statistic, freedom + 2.0 * (freedom * 25.0).sqrt() + 50.0)
}

proptest! {
    #[test]
    fn an_exact_table_is_a_map_with_a_limit(limit in 0usize..24, seed: u64, ops in exact_ops((0u32..40).boxed())) {
        exact(limit, seed, ops)?;
    }

    #[test]
    fn an_exact_table_takes_mac_addresses(limit in 0usize..24, seed: u64, ops in exact_ops((0u64..40).prop_map(|k| k << 40).boxed())) {
        exact(limit, seed, ops)?;
    }

    #[test]
    fn an_exact_table_takes_ipv6_addresses(limit in 0usize..24, seed: u64, ops in exact_ops((0u128..40).prop_map(|k| k << 64 | k).boxed())) {
        exact(limit, seed, ops)?;
    }

    #[test]
    fn longest_prefix_match_is_a_scan_for_the_longest_ipv4(seed: u64, ops in lpm_ops(addresses_v4(), 32)) {
        lpm(seed, ops, |prefix, len, key| (prefix ^ key).leading_zeros() >= len.into())?;
    }

    #[test]
    fn longest_prefix_match_is_a_scan_for_the_longest_ipv6(seed: u64, ops in lpm_ops(addresses_v6(), 128)) {
        lpm(seed, ops, |prefix, len, key| (prefix ^ key).leading_zeros() >= len.into())?;
    }

    #[test]
    fn a_ternary_table_is_a_scan_by_priority_then_age(ops in ternary_ops()) {
        let mut table = TernaryTable::new();
        let mut model: Vec<(u128, u128, i32, usize)> = vec![];
        for (age, op) in ops.into_iter().enumerate() {
            match op {
                TernaryOp::Insert(value, mask, priority) => {
                    table.insert(value, mask, priority, age);
                    model.push((value, mask, priority, age));
                }
                TernaryOp::Remove(value, mask) => {
                    let before = model.len();
                    model.retain(|(v, m, ..)| *m != mask || v & m != value & mask);
                    prop_assert_eq!(table.remove(value, mask), before - model.len());
                }
                TernaryOp::Get(key) => {
                    let matching = model.iter().filter(|(v, m, ..)| key & m == v & m);
                    let best = matching.max_by_key(|(_, _, priority, age)| (*priority, usize::MAX - age));
                    prop_assert_eq!(table.get(key), best.map(|(.., age)| age));
                }
            }
            prop_assert_eq!(table.entries().len(), model.len());
        }
    }

    #[test]
    fn a_group_serves_by_the_live_ports_of_its_first_priority_that_has_any(
        first in vec(masks(), 0..4),
        changes in vec(prop_oneof![masks().prop_map(Err), vec(masks(), 0..4).prop_map(Ok)], 0..8),
        hashes in vec(any::<u64>(), 1..20),
    ) {
        let mut group = Group::new(first.clone());
        let (mut priorities, mut live) = (first, PortMask(u64::MAX));
        for change in std::iter::once(Err(live)).chain(changes) {
            match change {
                Ok(new) => { priorities.clone_from(&new); group.set_priorities(new) }
                Err(new) => { live = new; group.set_live(new) }
            }
            let expected = serving(&priorities, live);
            prop_assert_eq!(group.members(), &expected[..]);
            prop_assert_eq!(group.serving(), expected.iter().copied().collect());
            prop_assert_eq!(group.priorities(), &priorities[..]);
            for hash in &hashes {
                match group.pick(*hash) {
                    Some(port) => prop_assert!(expected.contains(&port)),
                    None => prop_assert!(expected.is_empty()),
                }
            }
        }
    }

    #[test]
    fn a_group_table_makes_one_group_of_equal_priorities_and_keeps_all_to_the_live_ports(
        wanted in vec(vec(masks(), 0..3), 1..12),
        live in masks(),
        early in any::<bool>(),
    ) {
        let mut table = GroupTable::new();
        if early {
            table.set_live(live);
        }
        let ids: Vec<_> = wanted.iter().map(|p| table.intern(p.clone())).collect();
        table.set_live(live);
        for (i, (priorities, id)) in wanted.iter().zip(&ids).enumerate() {
            prop_assert_eq!(table.get(*id).priorities(), &priorities[..]);
            prop_assert_eq!(table.get(*id).members(), &serving(priorities, live)[..]);
            for (others, other) in wanted.iter().zip(&ids).take(i) {
                prop_assert_eq!(priorities == others, id == other);
            }
        }
        prop_assert_eq!(table.iter().count(), ids.iter().map(|id| id.0).max().map_or(0, |m| m as usize + 1));
        // A group made later knows who is live.
        let late = table.intern(vec![PortMask(u64::MAX)]);
        prop_assert_eq!(table.get(late).members(), &serving(&[PortMask(u64::MAX)], live)[..]);
    }

    #[test]
    fn flows_spread_evenly_over_the_members_of_a_group(seed: u64, ports in masks(), base: u64) {
        prop_assume!(ports.len() > 1);
        let (group, hash) = (Group::new(vec![ports]), FlowHash::new(seed));
        let mut counts = vec![0; 64];
        for flow in 0..200 * u64::from(ports.len()) {
            counts[group.pick(hash.words(base, flow)).expect("a member").index()] += 1;
        }
        let counts: Vec<u64> = ports.iter().map(|p| counts[p.index()]).collect();
        let (statistic, bound) = chi_square(&counts);
        prop_assert!(statistic < bound, "{} over {}: {:?}", statistic, bound, counts);
    }

    #[test]
    fn tiers_with_neighbouring_seeds_choose_independently(seed: u64, lower in 2u64..9, upper in 2u64..9, base: u64) {
        let group = |n: u64| Group::new(vec![PortMask((1 << n) - 1)]);
        let (first, second) = (FlowHash::new(seed), FlowHash::new(seed.wrapping_add(1)));
        let mut counts = vec![0; (lower * upper) as usize];
        for flow in 0..100 * lower * upper {
            let below = group(lower).pick(first.words(base, flow)).expect("a member").index();
            let above = group(upper).pick(second.words(base, flow)).expect("a member").index();
            counts[below * upper as usize + above] += 1;
        }
        let (statistic, bound) = chi_square(&counts);
        prop_assert!(statistic < bound, "{} over {}: {:?}", statistic, bound, counts);
    }

    #[test]
    fn a_register_array_is_an_array_of_a_power_of_two_addressed_by_low_bits(
        cells in 0usize..70,
        writes in vec((any::<u64>(), any::<u32>()), 0..100),
    ) {
        let mut registers = Registers::<u32>::new(cells);
        let size = cells.max(1).next_power_of_two();
        let mut model = vec![0; size];
        prop_assert_eq!(registers.len(), size);
        for (hash, value) in writes {
            let slot = (hash % size as u64) as usize;
            prop_assert_eq!((registers.slot(hash), *registers.at(hash)), (slot, model[slot]));
            *registers.at_mut(hash) = value;
            model[slot] = value;
        }
        prop_assert_eq!(registers.cells(), &model[..]);
        registers.clear();
        prop_assert!(registers.cells().iter().all(|c| *c == 0));
    }
}
