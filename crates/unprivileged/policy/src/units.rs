//! Sizes and durations as written in policies. `K`, `KB` and `KiB` all mean 1024: a limit must not depend on a reader's school.

/// Bytes from `^[0-9]+([KMGT]i?B?)?$`.
pub(crate) fn size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let factor: u64 = match unit {
        "" => 1,
        "K" | "KB" | "Ki" | "KiB" => 1 << 10,
        "M" | "MB" | "Mi" | "MiB" => 1 << 20,
        "G" | "GB" | "Gi" | "GiB" => 1 << 30,
        "T" | "TB" | "Ti" | "TiB" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// Milliseconds from `^[0-9]+(ms|s|m|h|d)$`.
pub fn duration(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let factor: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(factor)
}

fn split(text: &str) -> Option<(u64, &str)> {
    let end = text
        .bytes()
        .position(|b| !b.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end)?;
    Some((number.parse().ok()?, unit))
}

/// A size in its largest whole unit.
pub(crate) fn show_size(bytes: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes > 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// A duration in its largest whole unit.
pub(crate) fn show_duration(ms: u64) -> String {
    for (factor, unit) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")] {
        if ms > 0 && ms.is_multiple_of(factor) {
            return format!("{}{unit}", ms / factor);
        }
    }
    format!("{ms}ms")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_unit_that_is_not_in_the_list_is_refused() {
        for bad in [
            "",
            "K",
            "1k",
            "1B",
            "1KBi",
            "-1",
            "1.5G",
            "1 G",
            "99999999999T",
            "１K",
            "1P",
        ] {
            assert_eq!(size(bad), None, "{bad:?}");
        }
        assert_eq!(size("4GiB"), Some(4 << 30));
        assert_eq!(size("4G"), size("4GB"));
        for bad in ["", "5", "m", "1M", "1w", "-1s", "1.5h", "999999999999999999d"] {
            assert_eq!(duration(bad), None, "{bad:?}");
        }
        assert_eq!(duration("30m"), Some(1_800_000));
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back_the_same(n in any::<u64>()) {
            prop_assert_eq!(size(&show_size(n)), Some(n));
            prop_assert_eq!(duration(&show_duration(n)), Some(n));
        }
    }
}
