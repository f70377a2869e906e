//! Values of limits as people write them in the ceiling file: whole numbers in the limit's own unit, or text with one.
use bastle_contract::LimitKind;
use serde::Deserialize;

/// A number, or text with a unit.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Amount {
    Number(u64),
    Text(String),
}

const SIZES: &[(&str, u64)] = &[
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("T", 1 << 40),
    ("G", 1 << 30),
    ("M", 1 << 20),
    ("K", 1 << 10),
    ("B", 1),
];
const MILLISECONDS: &[(&str, u64)] = &[
    ("ms", 1),
    ("s", 1000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];
const SECONDS: &[(&str, u64)] = &[("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];

impl Amount {
    /// The value in the limit's unit, within what can be held.
    pub(super) fn of(&self, limit: LimitKind) -> Result<u64, String> {
        let value = match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => with_unit(text, units(limit)),
        };
        let (least, most) = limit.range();
        value
            .filter(|value| (least..=most).contains(value))
            .ok_or_else(|| format!("limits.{limit} must be a value between {least} and {most}"))
    }
}

fn units(limit: LimitKind) -> &'static [(&'static str, u64)] {
    match limit {
        LimitKind::WallTime => MILLISECONDS,
        LimitKind::CpuTime => SECONDS,
        LimitKind::Memory
        | LimitKind::Disk
        | LimitKind::BytesWritten
        | LimitKind::Output
        | LimitKind::FileSize
        | LimitKind::DiskReserve => SIZES,
        LimitKind::Cpu | LimitKind::Pids | LimitKind::OpenFiles | LimitKind::Inodes | LimitKind::Files => &[],
    }
}

fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    units.iter().find_map(|(unit, factor)| {
        let number = text.strip_suffix(unit)?;
        let plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| number.parse::<u64>().ok()?.checked_mul(*factor))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_without_a_known_unit_or_out_of_range_is_refused() {
        let of = |limit, text: &str| Amount::Text(text.to_owned()).of(limit);
        assert_eq!(of(LimitKind::Memory, "4GiB"), Ok(4 << 30));
        assert_eq!(of(LimitKind::Memory, "512M"), Ok(512 << 20));
        assert_eq!(of(LimitKind::WallTime, "90m"), Ok(5_400_000));
        assert_eq!(of(LimitKind::CpuTime, "1h"), Ok(3600));
        assert_eq!(Amount::Number(100).of(LimitKind::Pids), Ok(100));
        for bad in [
            "",
            "G",
            "-1G",
            "1.5G",
            "4 GiB",
            "4GB",
            "٤G",
            "99999999999999999999G",
            "9999999T",
            "1K",
        ] {
            assert!(of(LimitKind::Memory, bad).is_err(), "{bad:?}");
        }
        assert!(of(LimitKind::Pids, "100").is_err(), "a number is no text");
        assert!(Amount::Number(0).of(LimitKind::Pids).is_err());
    }
}
