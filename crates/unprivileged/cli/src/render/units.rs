//! Sizes, durations and times for people.
use std::time::{SystemTime, UNIX_EPOCH};

/// `48.2 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut scale: u64 = 1;
    while unit + 1 < UNITS.len() && count / scale >= 1024 {
        scale *= 1024;
        unit += 1;
    }
    if unit == 0 {
        return format!("{count} B");
    }
    let whole = count / scale;
    let tenth = (count % scale) * 10 / scale;
    if whole < 10 && tenth > 0 {
        format!("{whole}.{tenth} {}", UNITS[unit])
    } else {
        format!("{whole} {}", UNITS[unit])
    }
}

/// `850ms`, `2.1s`, `12m 4s`, `3h 20m`, `4d 1h`.
pub(crate) fn duration_ms(ms: u64) -> String {
    let seconds = ms / 1000;
    let pair = |big: u64, name: char, small: u64, least: char| {
        if small == 0 {
            format!("{big}{name}")
        } else {
            format!("{big}{name} {small}{least}")
        }
    };
    match seconds {
        0 => format!("{ms}ms"),
        1..=59 => format!("{seconds}.{}s", ms % 1000 / 100),
        60..=3599 => pair(seconds / 60, 'm', seconds % 60, 's'),
        3600..=86_399 => pair(seconds / 3600, 'h', seconds % 3600 / 60, 'm'),
        _ => pair(seconds / 86_400, 'd', seconds % 86_400 / 3600, 'h'),
    }
}

/// `12m ago`; a time in the future is `just now`.
pub(crate) fn ago(then_ms: u64, now_ms: u64) -> String {
    let seconds = now_ms.saturating_sub(then_ms) / 1000;
    match seconds {
        0..=1 => "just now".to_owned(),
        2..=59 => format!("{seconds}s ago"),
        60..=3599 => format!("{}m ago", seconds / 60),
        3600..=86_399 => format!("{}h ago", seconds / 3600),
        _ => format!("{}d ago", seconds / 86_400),
    }
}

/// RFC 3339 in UTC; empty for a time that no calendar has.
pub(crate) fn timestamp(ms: u64) -> String {
    let time = i64::try_from(ms)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    time.map(|time| time.to_string()).unwrap_or_default()
}

/// Milliseconds since 1970; 0 when the clock is before that.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_durations_and_ages_have_one_obvious_unit() {
        assert_eq!(
            [0, 1023, 1024, 1536, 48 << 20, u64::MAX].map(bytes),
            ["0 B", "1023 B", "1 KiB", "1.5 KiB", "48 MiB", "16777215 TiB"]
        );
        assert_eq!(
            [0, 850, 2150, 724_000, 12_000_000, 349_200_000].map(duration_ms),
            ["0ms", "850ms", "2.1s", "12m 4s", "3h 20m", "4d 1h"]
        );
        assert_eq!(ago(5000, 0), "just now");
        assert_eq!(ago(0, 3 * 86_400_000), "3d ago");
        assert_eq!(timestamp(0), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(u64::MAX), "");
    }
}
