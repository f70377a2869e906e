//! Interleaved sampling: A B C A B C …, so that a busy minute of the machine falls on everybody alike.
use crate::sh::Failed;
use std::collections::BTreeMap;
use std::fmt::Write;

/// One measured thing.
pub(super) struct Contender<'a> {
    pub(super) name: &'static str,
    /// Runs once and says how many milliseconds it took.
    pub(super) once: Box<dyn FnMut() -> Result<f64, Failed> + 'a>,
}

/// What was measured of one contender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    pub(super) median: f64,
    pub(super) min: f64,
}

/// Rounds whose times are thrown away: first runs fill the page cache.
const WARM_UP: usize = 3;

/// Runs everybody `samples` times in turn.
pub(super) fn interleave(
    contenders: &mut [Contender<'_>],
    samples: usize,
) -> Result<BTreeMap<String, Measured>, Failed> {
    interleave_told(contenders, (samples, WARM_UP), &mut |_, _, _| {})
}

/// The same with as many rounds for warming up as are said, for contenders of which one round is long; `told` hears the
/// round, the name and the milliseconds of each.
pub(super) fn interleave_told(
    contenders: &mut [Contender<'_>],
    (samples, warm_up): (usize, usize),
    told: &mut dyn FnMut(usize, &str, f64),
) -> Result<BTreeMap<String, Measured>, Failed> {
    let mut times: Vec<Vec<f64>> = contenders.iter().map(|_| Vec::with_capacity(samples)).collect();
    for round in 0..samples + warm_up {
        for (contender, times) in contenders.iter_mut().zip(&mut times) {
            let milliseconds = (contender.once)()
                .map_err(|failed| Failed::new(format!("bench {}", contender.name), failed.to_string()))?;
            told(round, contender.name, milliseconds);
            if round >= warm_up {
                times.push(milliseconds);
            }
        }
    }
    Ok(contenders
        .iter()
        .zip(&mut times)
        .filter_map(|(contender, times)| Some((contender.name.to_owned(), measured(times)?)))
        .collect())
}

/// Median and minimum; nothing of nothing.
pub(super) fn measured(times: &mut [f64]) -> Option<Measured> {
    times.sort_by(f64::total_cmp);
    let middle = times.len() / 2;
    let upper = *times.get(middle)?;
    let median = if times.len().is_multiple_of(2) {
        f64::midpoint(times[middle - 1], upper)
    } else {
        upper
    };
    Some(Measured {
        median,
        min: *times.first()?,
    })
}

/// Ratios of medians, named `a_over_b`, for the pairs where both were measured.
pub(super) fn ratios(measured: &BTreeMap<String, Measured>, pairs: &[(&str, &str)]) -> BTreeMap<String, f64> {
    pairs
        .iter()
        .filter_map(|(above, below)| {
            let above_median = measured.get(*above)?.median;
            let below_median = measured.get(*below)?.median;
            (below_median > 0.0).then(|| {
                (
                    format!("{above}_over_{below}"),
                    rounded(above_median / below_median),
                )
            })
        })
        .collect()
}

/// Three decimals: more would pretend a precision that nobody has.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// The table people read.
pub(super) fn table(measured: &BTreeMap<String, Measured>, ratios: &BTreeMap<String, f64>) -> String {
    let mut rows: Vec<(&String, &Measured)> = measured.iter().collect();
    rows.sort_by(|(_, a), (_, b)| a.median.total_cmp(&b.median));
    let mut text = format!("{:<24} {:>12} {:>12}\n", "what", "median ms", "min ms");
    let mut line = |arguments: std::fmt::Arguments<'_>| {
        // Writing to a String cannot fail.
        text.write_fmt(arguments).unwrap_or_default();
    };
    for (name, times) in rows {
        line(format_args!(
            "{name:<24} {:>12.3} {:>12.3}\n",
            times.median, times.min
        ));
    }
    for (name, ratio) in ratios {
        line(format_args!("{name:<24} {ratio:>12.3}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn contenders_take_turns_and_the_first_rounds_do_not_count() {
        let order = RefCell::new(String::new());
        let contender = |name: &'static str, time: f64| {
            let (order, mut calls) = (&order, 0);
            Contender {
                name,
                once: Box::new(move || {
                    order.borrow_mut().push_str(name);
                    calls += 1;
                    Ok(if calls <= WARM_UP { 1e9 } else { time })
                }),
            }
        };
        let mut contenders = [contender("a", 1.0), contender("b", 2.0)];
        let measured = interleave(&mut contenders, 2).expect("runs");
        drop(contenders);
        assert_eq!(order.into_inner(), "ababababab");
        assert_eq!(
            measured["b"],
            Measured {
                median: 2.0,
                min: 2.0
            }
        );
    }

    #[test]
    fn the_median_is_the_middle_and_not_the_mean() {
        assert_eq!(
            measured(&mut [100.0, 1.0, 2.0]),
            Some(Measured {
                median: 2.0,
                min: 1.0
            })
        );
        assert_eq!(
            measured(&mut [4.0, 1.0, 2.0, 100.0]),
            Some(Measured {
                median: 3.0,
                min: 1.0
            })
        );
        assert_eq!(measured(&mut []), None);
    }

    #[test]
    fn a_ratio_needs_both_sides() {
        let one = Measured {
            median: 3.0,
            min: 1.0,
        };
        let two = Measured {
            median: 2.0,
            min: 1.0,
        };
        let measured = BTreeMap::from([("run".to_owned(), one), ("bwrap".to_owned(), two)]);
        let ratios = ratios(
            &measured,
            &[("run", "bwrap"), ("spawner", "bwrap"), ("run", "limit")],
        );
        assert_eq!(ratios, BTreeMap::from([("run_over_bwrap".to_owned(), 1.5)]));
    }
}
